"""The stages of a conversion: a table of them (`stage_table`), their records and their code.

`model_stages` holds the model in memory. `model_process` keeps it in a process of its own, which
`forking` starts, `memory` measures and `serve_model` runs in; `prove`, `publish` and
`verify` only need the bundle. `retries` is where work becomes Prefect tasks.
"""
