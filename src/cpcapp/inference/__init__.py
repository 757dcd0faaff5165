"""How many components there are, and how sure that is.

`permutation` counts the significant ones by shuffling rows; `noise` only where there are no rows.
`held_out` has contrasts on unseen rows, `power` p-values of samples, `bootstrap` the stability of
directions, each by `refit`; `notes` is what a reader should know.
"""
