//! The comparison as a page of the book.

use std::fmt::Write as _;

use dyad_sim_model::config::MemoryModel;

use super::{Matrix, Outcome, PROFILE, Results, System};
use crate::npb::Bench;
use crate::sweep::Rows;

const HEAD: &str = "\
# Fused against multiple, class {class}

The kernels of NPB over kernels that share memory (*fused*) and over kernels that only [exchange messages](../architecture/multiple.md), through
rings (*ring*) and over a network (*tcp*), beside the same program without moves (*vanilla*), as

```console
$ cargo xtask bench compare --class {class}{only}{place}{costs} --page {file}
```

has measured them in strict order, with simulated time, profile `{profile}`. The thread's iterations run on both nodes as `--place {placed}` says
([programs](programs.md#options)); IS is the one with buckets. Time is that from the beginning of the first timed phase to the end of the last. Messages
are those about pages, from the start of the program on; *pages* are those of which the second node has got a copy. Lines are those that no cache of
the node had, in the timed phases: from its own memory, and from elsewhere. *Waiting* is the time in which CPUs waited for messages only.

*Explained* is a time made of counts, in relation to the measured one. It begins with what fused kernels take where all memory is near: computing and
moving. To that comes, for fused kernels, what accesses took beyond the node's memory by the simulator's account. For kernels that exchange messages
come the faults of the timed phases, at the prices of the last table: `return` for those with contents, the mean of `upgrade` and `zero` for the others.

";

impl Results {
    /// The page, for a file. Its picture is the file `picture` beside it.
    pub fn page(&self, file: &str, picture: &str, table: &Rows) -> String {
        let profile = table
            .all()
            .next()
            .map_or(PROFILE, |row| row.cell("profile"));
        let place = match self.matrix.place.name() {
            "alternate" => String::new(),
            other => format!(" --place {other}"),
        };
        let list = |option: &str, is_usual: bool, names: Vec<&str>| match is_usual {
            true => String::new(),
            false => format!(" --{option} {}", names.join(",")),
        };
        let Matrix {
            benches,
            systems,
            models,
            ..
        } = &self.matrix;
        let is_usual = benches == &Bench::ALL;
        let mut only = list("only", is_usual, benches.iter().map(|b| b.name()).collect());
        let is_usual = systems == &System::USUAL;
        only += &list(
            "systems",
            is_usual,
            systems.iter().map(|s| s.name()).collect(),
        );
        let is_usual = models == &MemoryModel::PAPER;
        only += &list(
            "models",
            is_usual,
            models.iter().map(|m| m.name()).collect(),
        );
        let costs = match profile {
            PROFILE => String::new(),
            other => format!(" --profile {other}"),
        };
        let mut out = HEAD
            .replace("{costs}", &costs)
            .replace("{only}", &only)
            .replace("{file}", file)
            .replace("{class}", self.matrix.class.name())
            .replace("{placed}", self.matrix.place.name())
            .replace("{place}", &place)
            .replace("{profile}", profile);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "![Time in relation to vanilla, by kernel, memory model and system; the numbers are in the tables]({picture})\n"
        );
        for &bench in &self.matrix.benches {
            let _ = writeln!(out, "## {}\n", bench.name().to_uppercase());
            out.push_str(
                "| model | system | time | / vanilla | messages | pages | instructions | local lines | remote lines | waiting | explained |\n\
                 |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            );
            for row in self.rows.iter().filter(|row| row.bench == bench) {
                let _ = write!(out, "| {} | {} |", row.model.name(), row.system.name());
                let _ = match &row.outcome {
                    Outcome::Missing => writeln!(out, " missing | | | | | | | | |"),
                    Outcome::Failed(why) => writeln!(out, " failed: {why} | | | | | | | | |"),
                    Outcome::Good(f) => {
                        writeln!(out, " {} |", self.cells(row, f).join(" | "))
                    }
                };
            }
            out.push('\n');
            for line in self.verdicts(bench) {
                let _ = writeln!(out, "- {line}.");
            }
            for &system in self
                .matrix
                .systems
                .iter()
                .filter(|s| s.transport().is_some())
            {
                if let Some(spread) = self.spread(bench, system) {
                    let percent = (spread - 1.0) * 100.0;
                    let name = system.name();
                    let _ = writeln!(
                        out,
                        "- {name} takes up to {percent:.1} % longer in one memory model than in another."
                    );
                }
            }
            out.push('\n');
        }
        if let Some(faults) = &self.faults {
            out.push_str("## What a fault costs\n\nIn microseconds, as in [cost of a page fault](faults.md).\n\n");
            out.push_str(&faults.table());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::results;
    use crate::sweep::Rows;

    #[test]
    fn the_page_has_a_row_for_each_point_and_says_who_loses() {
        let page = results([[10, 40, 20, 15], [10, 0, 20, 30]]).page(
            "compare.md",
            "compare.svg",
            &Rows::none(),
        );
        assert_eq!(
            page.matches("\n| se").count() + page.matches("\n| sh").count(),
            8,
            "{page}"
        );
        for words in [
            "fused LOSES",
            "| shared | tcp | missing |",
            "](compare.svg)",
            "--class S --only is --models separated,shared --page",
        ] {
            assert!(page.contains(words), "{words:?} not in:\n{page}");
        }
    }
}
