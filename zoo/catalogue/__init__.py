"""The catalogue: a static site of all promoted releases, kept in the store beside them."""

from zoo.catalogue.collect import CataloguedModel, CataloguedRelease, History
from zoo.catalogue.pages import Site
from zoo.catalogue.site import INDEX, keep_site, kept_site, share_catalogue, update_catalogue

__all__ = [
    "INDEX",
    "CataloguedModel",
    "CataloguedRelease",
    "History",
    "Site",
    "keep_site",
    "kept_site",
    "share_catalogue",
    "update_catalogue",
]
