"""The one eigenproblem: filters and atoms of two covariances.

`solve` is Algorithm 1 of the paper (``loading="none"``) and how it is loaded otherwise; `loading`
has the rules; `dense`, `basis` (fewer rows than features) and `matrix_free` have the solvers, and
`solution` what comes out. `difference` is cPCA, `sparse_filters` finds filters of few features.
"""
