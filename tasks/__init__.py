"""The stages of a conversion: a table of them (`stage_table`), their records, what does them.

`model_stages` holds the model in memory, `model_process` keeps it in a process of its own, which
`forking` begins, `memory` measures and in which `serve_model` answers; `prove`, `publish` and
`verify` need the bundle alone. Prefect is met in `retries`.
"""
