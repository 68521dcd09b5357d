//! The table as a page of the book.

use std::fmt::Write as _;

use dyad_abi::Isa;
use dyad_abi::marker::{BENCH_OPS, BenchMemory, BenchOp};

use super::longest::BOUND;
use super::peers::peers;
use super::report::BenchReport;
use super::results::{Key, Row};

const HEAD: &str = "\
# Figures

What operations of the kernel cost, in instructions, as

```console
$ cargo xtask bench kernel --cycles --page book/src/reference/figures.md
```

has counted them, with the simulator's clock on. Each figure is the median of at least 32 repetitions, with the stub of the caller, with objects in the
pool of the node / in the CXL pool; *lines* are distinct lines of data and *atomics* atomic read-modify-writes, both with
objects in the CXL pool. What each operation is, how its result is checked and what the figures of seL4 are is in
[counting](measure.md). `~` stands before figures that were not the same in every repetition. Kernels are built as for
every run (profile `kernel`).

";

const CYCLES: &str = "
## Simulated time

The same operations at level `timing`, in the shared memory model, profile `paper-big`: cycles of the node, median and in
brackets what 99 of 100 take at most, interrupts in between included. The marker that ends a window is in it: 1 cycle on
x86-64, 2 on AArch64. Of an operation of two nodes the parts are added up.

";

const MASKED: &str = "
## Longest stretch with interrupts masked

Instructions from the entry into the kernel until the CPU takes interrupts again, over all operations with their worst
arguments (program `bounds`) and over these benchmarks. What each operation's longest stretch is, `bench kernel` prints.

| ISA | longest | part of | bound |
|---|---:|---|---:|
";

/// One ISA's figures of an operation.
fn figure(report: &BenchReport, op: BenchOp, isa: Isa) -> String {
    let row = |memory| report.results.rows.get(&Key { op, isa, memory });
    let counts = |row: Option<&Row>| row.and_then(|r| r.counts).map(|c| c.instructions);
    let text = |memory| {
        counts(row(memory)).map(|c| {
            let same = if c.min == c.max { "" } else { "~" };
            format!("{same}{}", c.median)
        })
    };
    match (text(BenchMemory::Local), text(BenchMemory::Fused)) {
        (Some(local), Some(fused)) => format!("{local} / {fused}"),
        (None, Some(one)) | (Some(one), None) => one,
        (None, None) => "-".into(),
    }
}

/// Lines and atomics of an operation on objects in the CXL pool.
fn touched(report: &BenchReport, op: BenchOp, isa: Isa) -> String {
    let memory = BenchMemory::Fused;
    let row = report.results.rows.get(&Key { op, isa, memory });
    match row.and_then(|r| r.counts) {
        Some(c) => format!("{}, {}", c.lines.median, c.atomics.median),
        None => "-".into(),
    }
}

fn number(n: Option<u64>) -> String {
    n.map_or_else(|| "-".into(), |n| n.to_string())
}

impl BenchReport {
    /// The page.
    pub fn page(&self) -> String {
        let mut out = String::from(HEAD);
        out.push_str(
            "| operation | x86-64 | lines, atomics | AArch64 | lines, atomics | goal | seL4 x86-64, AArch64 |\n\
             |---|---:|---:|---:|---:|---:|---:|\n",
        );
        let ops = || BENCH_OPS.iter().copied().filter(|op| *op != BenchOp::Empty);
        for op in ops() {
            let memory = BenchMemory::Fused;
            let goal = |isa| self.results.goal(Key { op, isa, memory });
            let (x, a) = (goal(Isa::X86_64), goal(Isa::Aarch64));
            let goal = match x == a {
                true => number(x),
                false => format!("{}, {}", number(x), number(a)),
            };
            let sel4 = Isa::ALL.map(|isa| number(peers(op).sel4_on(isa)));
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "| `{op}` | {} | {} | {} | {} | {goal} | {} |",
                figure(self, op, Isa::X86_64),
                touched(self, op, Isa::X86_64),
                figure(self, op, Isa::Aarch64),
                touched(self, op, Isa::Aarch64),
                sel4.join(", "),
            );
        }
        out.push_str(MASKED);
        for isa in Isa::ALL {
            if let Some((what, longest)) = self.longest.of(isa) {
                let _ = writeln!(out, "| {isa} | {longest} | {what} | {BOUND} |");
            }
        }
        if !self.cycles.rows.is_empty() {
            out.push_str(CYCLES);
            out.push_str(&self.cycles.page(ops()));
        }
        out
    }
}
