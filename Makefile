# Everything runs in a virtual environment of its own, made on first use.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench bench-loading bench-edges bench-splicing bench-verdicts bench-double-jpeg bench-tables bench-counting bench-sparse bench-scale bench-gpu bench-web faults fuzz mutants train-edges train-filters train-paper train-default calibration-photos gallery commands scores page-pictures docs clean

help:
	@echo "make demo    install and run the main job on shipped examples (pictures in demo-output/)"
	@echo "make test    install, lint, type-check and run all tests"
	@echo "make lint    ruff and mypy only"
	@echo "make bench   measure speed and memory; writes benchmarks/results/*.json"
	@echo "make bench-loading    judge rules for the loading by labels they never see (CPCAPP_DATA)"
	@echo "make train-edges, make train-filters, make train-paper, make train-default"
	@echo "                                        make the shipped models again (CPCAPP_DATA; GENUINE=...)"
	@echo "make calibration-photos    the genuine photos that they compare with (SNAPSHOTS, POOL, GENUINE)"
	@echo "make bench-edges    score the edge detector (CPCAPP_DATA)"
	@echo "make bench-splicing    training and localizing: speed, memory, scores (CPCAPP_DATA)"
	@echo "make bench-verdicts    score regions and verdicts, count false alarms (CPCAPP_DATA)"
	@echo "make bench-double-jpeg    fit and check the traces of double compression (CPCAPP_DATA)"
	@echo "make bench-tables    memory and speed on a CSV file of 1 GB"
	@echo "make bench-counting    false alarms and power of the number of components, p-values"
	@echo "make bench-sparse    large sparse data against two truncated SVDs"
	@echo "make bench-scale    time and memory against rows, features and workers"
	@echo "make bench-gpu    moments, contrasts and photos on a GPU"
	@echo "make bench-web    the page under load: 64 clients, and some that misbehave"
	@echo "make fuzz SECONDS=600    open damaged files of every kind, in processes with bounded memory"
	@echo "make faults    let every write, sync, rename and some allocations fail, and look what is left"
	@echo "make mutants    put faults into the code and count those the tests notice (CPCAPP_DATA)"
	@echo "make gallery make the pages of docs/gallery again (CPCAPP_DATA; some minutes)"
	@echo "make commands    write docs/commands.md from the commands themselves"
	@echo "make scores    write the figures of benchmarks/results into the pages"
	@echo "make page-pictures    take the pictures of the page for the documents (Chromium)"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make clean   remove the virtual environment and everything that was built"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("cpcapp needs Python 3.11 or later, this is %d.%d; try make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV)

# A stamp for each set of dependencies: installed again when pyproject.toml changes, and only then, so
# that all commands work without a network later. Quiet twice: errors are shown, and not what pip
# thinks of its sources.
INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
$(VENV)/.user: $(BIN)/python pyproject.toml Makefile
	@$(INSTALL) -e ".[plot,web,heif]"
	@touch $@
$(VENV)/.dev: $(BIN)/python pyproject.toml
	@$(INSTALL) -e ".[dev]"
	@touch $@
$(VENV)/.bench: $(BIN)/python pyproject.toml
	@$(INSTALL) -e ".[plot,bench]"
	@touch $@

demo: $(VENV)/.user
	@$(BIN)/cpcapp demo -o demo-output
	@echo
	@$(BIN)/cpcapp demo --contrast -o demo-output
	@echo
	@echo "To look at photos and tables of your own in a browser: $(BIN)/cpcapp serve"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Small matrices gain nothing by threads, and lose much when two processes share two cores.
# Files are given out in the order of their names, so the many short ones of src come last and both
# processes end together; by the number of their tests, long ones of a single test would come last.
# Bytecode is written even where the shell forbids it: tests start processes that import the package.
# Without CPCAPP_DATA, torch and Chromium some tests are skipped; a line for each reason says what
# helps. COVERAGE=94 counts covered lines, which takes a fifth longer, and asks for so many percent:
# what runs in processes of its own, such as decoders and workers of the page, is not counted.
COVERAGE ?=
test: lint
	OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(if $(COVERAGE),--cov --cov-report=term --cov-fail-under=$(COVERAGE))

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/fit_over_floor.py
	$(BIN)/python benchmarks/estimators.py
bench-loading: $(VENV)/.bench
	$(BIN)/python benchmarks/loading_rules.py

# Need the folders bsds500 and ucid in CPCAPP_DATA: they make the shipped forest and the shipped
# localizers again.
train-edges: $(VENV)/.bench
	$(BIN)/cpcapp train-edges "$(CPCAPP_DATA)/bsds500" -o src/cpcapp/splicing/measure/edges/forest.safetensors.gz
# Stopped, it goes on where it was.
train-filters train-paper: train-%: $(VENV)/.bench
	$(BIN)/cpcapp train "$(CPCAPP_DATA)/bsds500" "$(CPCAPP_DATA)/ucid" --preset $* -o new-$*.safetensors
	mv new-$*.safetensors src/cpcapp/splicing/models/$*.safetensors
# NETWORK is what `cpcapp train-network` wrote; without it, the network of the package. Stopped, it
# goes on where it was.
train-default: $(VENV)/.bench
	$(BIN)/python benchmarks/shipped_models.py "$(GENUINE)" $(if $(NETWORK),--network "$(NETWORK)") -o new-models
	mv new-models/*.safetensors src/cpcapp/splicing/models/
# Needs the public repositories that benchmarks/training_photos.py names, as git repositories in the
# folder SNAPSHOTS, and the pool that it makes of them.
calibration-photos: $(VENV)/.bench
	$(BIN)/python benchmarks/calibration_photos.py "$(SNAPSHOTS)" "$(POOL)" -o "$(GENUINE)"
bench-edges: $(VENV)/.bench
	$(BIN)/python benchmarks/edges.py
bench-tables: $(VENV)/.bench
	$(BIN)/python benchmarks/tables.py
bench-counting: $(VENV)/.bench
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/counting.py
bench-sparse: $(VENV)/.bench
	OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(BIN)/python benchmarks/sparse.py
bench-scale: $(VENV)/.bench
	$(BIN)/python benchmarks/scale.py --go-on
# Needs torch and a GPU.
bench-gpu: $(VENV)/.bench
	$(BIN)/python benchmarks/gpu.py -o benchmarks/results/gpu.json
bench-web: $(VENV)/.dev
	$(BIN)/python benchmarks/web.py
bench-splicing: $(VENV)/.bench
	$(BIN)/python benchmarks/splicing.py
	$(BIN)/python benchmarks/models.py
# Needs the folders columbia_dev, casia2_pairs, bsds500 and ucid in CPCAPP_DATA.
bench-verdicts: $(VENV)/.bench
	$(BIN)/python benchmarks/verdicts.py

# Needs the folder bsds500 in CPCAPP_DATA; four minutes. Its "fit" goes into double_jpeg.py.
bench-double-jpeg: $(VENV)/.bench
	$(BIN)/python benchmarks/double_jpeg.py

# All targets share the time.
SECONDS ?= 600
fuzz: $(VENV)/.dev
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/fuzz.py --seconds $(SECONDS)
# Half an hour.
faults: $(VENV)/.dev
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/faults.py

# Needs the folders columbia_dev and casia2_pairs in CPCAPP_DATA; half an hour on two cores.
mutants: $(VENV)/.dev
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/mutants.py

# Needs the folders mnist, grass, mice_protein, mhealth and leukemia in CPCAPP_DATA.
gallery: $(VENV)/.dev
	$(BIN)/python docs/make_gallery.py

commands: $(VENV)/.dev
	$(BIN)/python docs/make_commands.py
scores: $(VENV)/.dev
	$(BIN)/python docs/make_scores.py
	$(BIN)/python docs/make_security.py

page-pictures: $(VENV)/.dev
	OPENBLAS_NUM_THREADS=1 $(BIN)/python docs/make_page_pictures.py

docs: $(VENV)/.dev
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

clean:
	rm -rf $(VENV) demo-output docs/_build docs/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
