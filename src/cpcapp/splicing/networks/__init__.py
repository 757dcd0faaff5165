"""Networks: torch is needed here and in `cpcapp.splicing.making.stream` only."""
