"""The catalogue: a static site of all promoted releases, kept in the store beside them."""

from zoo.catalogue.records import CataloguedModel, CataloguedRelease, History
from zoo.catalogue.site import INDEX, update_catalogue

__all__ = ["INDEX", "CataloguedModel", "CataloguedRelease", "History", "update_catalogue"]
