"""The stages of a conversion: pure functions, and one thin Prefect task around each."""
