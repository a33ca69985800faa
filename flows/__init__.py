"""The flows that arrange the tasks, and the `zoo` command line.

Each flow is a file of this folder. The rooms below it, in the order in which a run meets them:
`request` (what is asked for), `planning` (what has to be done), `running` (how flows run),
`dispatch` (who converts), `outcome` (how it went), `machine` (what belongs to this machine).
`connection` says which server is meant; `cli` is the command line.
"""
