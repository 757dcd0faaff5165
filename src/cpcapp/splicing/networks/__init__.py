"""Networks. All that needs torch is here, in `make.histories`, `make.stream` and `devices`."""
