# Thin names over cargo and `cargo xtask`, which do all the work. `just` lists them.

[private]
default:
    @{{ quote(just_executable()) }} --list --unsorted

# Build everything, boot the pair, run the tour (arguments as for `cargo xtask run`)
run *ARGS:
    cargo xtask run {{ARGS}}

# Run the first tier of the tests: host, model checks, machines (arguments as for `cargo test`)
test *ARGS:
    cargo test {{ARGS}}

# Run the tests of a tier: quick, full or long (arguments as for `cargo xtask test`)
tier *ARGS:
    cargo xtask test {{ARGS}}

# Run the tests that need no machines
test-host *ARGS:
    cargo test --workspace --exclude kernel-x86_64 --exclude kernel-aarch64 --exclude dyad-qemu-tests {{ARGS}}

# Run the in-kernel tests and whole runs on real machines (arguments filter by name)
test-qemu *ARGS:
    cargo test --package dyad-qemu-tests {{ARGS}}

# Run the tour many times and keep the logs of runs that fail
soak *ARGS:
    cargo xtask soak {{ARGS}}

# Check that this computer has what is needed
doctor:
    cargo xtask doctor

# Make a new program in userland/apps
new NAME:
    cargo xtask new {{NAME}}

# Check formatting and lints of everything
lint:
    .ci/run lint

# Build the reference documentation of the crates
doc:
    .ci/run doc

# Build the book into target/book (needs mdbook)
book:
    mdbook build book

# Run what continuous integration runs
ci:
    .ci/run
