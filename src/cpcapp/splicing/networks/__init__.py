"""Networks: torch is needed here and in `cpcapp.splicing.make.stream` only."""
