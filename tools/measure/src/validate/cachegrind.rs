//! Valgrind's cachegrind, on the same program as a host binary.
//!
//! Both have a first level for data and one below it, ours the second level of the machine. The
//! host's operating system, start and end cancel in the difference of a long and a short run; what
//! the machine has counted is that of a region.
//!
//! Two things would make the host binary do other work than the program in the machine, and are
//! taken away from it:
//!
//! - Loops that the compiler unrolls by the rules of x86-64. The IR of user programs is optimised
//!   once for both ISAs, by those of AArch64, and code for x86-64 is made of that.
//! - The host library's `memset` and `memcpy` by string instructions. Valgrind counts one for every
//!   byte that it moves, our counters one in all.
//!
//! Reads of data are compared, not writes: cachegrind takes an instruction that reads, modifies and
//! writes memory for a read, while it is both in the machine.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dyad_abi::Isa;
use dyad_sim_model::report::Counters;

use super::{Context, Findings, region};
use dyad_launcher::config::Sim;
use dyad_launcher::error::Error;
use dyad_launcher::{build, paths};

const PART: f64 = 0.02;
const OURS: &str = "l1.size=32K l1.ways=8 l2.size=1M l2.ways=16 l3.size=256M l3.ways=16";
const THEIRS: [&str; 3] = ["--I1=32768,8,64", "--D1=32768,8,64", "--LL=1048576,16,64"];
/// Keeps the host's compiler from unrolling loops that the pipeline leaves as they are.
const RUSTFLAGS: &str = "-Cforce-frame-pointers=yes -Cllvm-args=-unroll-runtime=false \
                         -Cllvm-args=-unroll-allow-partial=false";
/// Keeps the host's library from using string instructions.
const TUNABLES: &str = "glibc.cpu.hwcaps=-ERMS,-FSRM";

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Instructions,
    Reads,
    D1,
    LL,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            What::Instructions => "instructions",
            What::Reads => "reads of data",
            What::D1 => "D1 misses",
            What::LL => "LL misses",
        }
    }

    const fn ours(self, c: &Counters) -> u64 {
        match self {
            What::Instructions => c.instructions,
            What::Reads => c.loads + c.rmws,
            What::D1 => c.l1d_misses,
            What::LL => c.l2_misses,
        }
    }

    fn theirs(self, c: &Summary) -> u64 {
        match self {
            What::Instructions => c.ir,
            What::Reads => c.dr,
            What::D1 => c.d1,
            What::LL => c.ll,
        }
    }
}

/// What is compared of every load.
const ALWAYS: [What; 3] = [What::Instructions, What::Reads, What::D1];

/// A load, passes of the host's short and long run, and whether it has so many misses of the last
/// level that those are compared too.
type Case = (&'static str, u32, u32, bool);

const CASES: &[Case] = &[
    ("matmul", 1, 5, false),
    ("sort", 1, 5, false),
    ("conflict", 1, 5, false),
    ("chase", 1, 5, true),
    ("stream", 1, 3, true),
    ("random", 1, 9, true),
    ("is", 1, 5, false),
    ("cg", 1, 2, false),
];

/// The ISA of this computer.
const HOST: Isa = if cfg!(target_arch = "aarch64") {
    Isa::Aarch64
} else {
    Isa::X86_64
};

pub(super) fn compare(cx: &mut Context<'_>, findings: &mut Findings) -> Result<(), Error> {
    let program = build_for_host()?;
    let loads: Vec<String> = CASES
        .iter()
        .map(|(l, _, long, _)| format!("{l}:{long}"))
        .collect();
    let args = format!("--load {} --home {HOST}", loads.join(","));
    let report = cx.run(Sim::Cache, "sim-loads", &args, |c| {
        c.setup.set.push(super::settings(OURS));
        c.rounds = 1;
    })?;
    for (place, &(load, short, long, last_level)) in CASES.iter().enumerate() {
        let counters = region::of(&report, HOST, place)?.counters;
        let few = cachegrind(&program, load, short)?;
        let many = cachegrind(&program, load, long)?;
        for what in ALWAYS.into_iter().chain(last_level.then_some(What::LL)) {
            let ours = what.ours(&counters) as f64 / f64::from(long);
            let theirs = what.theirs(&many).saturating_sub(what.theirs(&few));
            let theirs = theirs as f64 / f64::from(long - short);
            let name = format!("{load}, {} of a pass, {HOST}", what.name());
            findings.near(name, ours, theirs, PART);
        }
    }
    Ok(())
}

/// The program as a host binary.
fn build_for_host() -> Result<PathBuf, Error> {
    let dir = paths::target_dir().join("cachegrind");
    let mut c = build::cargo();
    c.args([
        "build",
        "--package",
        "sim-loads",
        "--profile",
        "user",
        "--target-dir",
    ]);
    c.arg(&dir).env("RUSTFLAGS", RUSTFLAGS).stdin(Stdio::null());
    let out = c.output();
    let out = out.map_err(|e| Error::Build(format!("cannot start cargo: {e}")))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        return Err(Error::Build(format!(
            "{said}sim-loads does not build for the host"
        )));
    }
    Ok(dir.join("user/sim-loads"))
}

/// What cachegrind has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Summary {
    ir: u64,
    dr: u64,
    d1: u64,
    ll: u64,
}

impl Summary {
    /// Reads its file.
    fn parse(text: &str) -> Option<Summary> {
        let line = |head: &str| text.lines().find_map(|l| l.strip_prefix(head));
        let names: Vec<&str> = line("events:")?.split_whitespace().collect();
        let numbers: Option<Vec<u64>> = line("summary:")?
            .split_whitespace()
            .map(|n| n.replace(',', "").parse().ok())
            .collect();
        let numbers = numbers?;
        let get = |name: &str| numbers.get(names.iter().position(|n| *n == name)?).copied();
        Some(Summary {
            ir: get("Ir")?,
            dr: get("Dr")?,
            d1: get("D1mr")? + get("D1mw")?,
            ll: get("ILmr")? + get("DLmr")? + get("DLmw")?,
        })
    }
}

fn cachegrind(program: &Path, load: &str, passes: u32) -> Result<Summary, Error> {
    let file = paths::target_dir().join("cachegrind/out");
    let mut c = Command::new("valgrind");
    c.args(["--tool=cachegrind", "--cache-sim=yes"])
        .args(THEIRS);
    c.arg(format!("--cachegrind-out-file={}", file.display()));
    c.arg(program).args(["--load", &format!("{load}:{passes}")]);
    c.env("GLIBC_TUNABLES", TUNABLES);
    let out = c.stdin(Stdio::null()).output();
    let out = out.map_err(|e| Error::Setup(format!("cannot run valgrind: {e}")))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        return Err(Error::Run(format!(
            "valgrind with {load}: {}\n{said}",
            out.status
        )));
    }
    let text = std::fs::read_to_string(&file)
        .map_err(|e| Error::io("cannot read what cachegrind has counted", e))?;
    Summary::parse(&text).ok_or_else(|| Error::Run("cachegrind has written no summary".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_read() {
        let text = "desc: x\nevents: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw\nfn=a\n1 2\n\
                    summary: 1,000 2 3 400 50 6 70 8 9\n";
        let summary = Summary {
            ir: 1000,
            dr: 400,
            d1: 58,
            ll: 18,
        };
        assert_eq!(Summary::parse(text), Some(summary));
        assert_eq!(Summary::parse("events: Ir\nsummary: 5\n"), None);
        assert_eq!(Summary::parse(""), None);
    }
}
