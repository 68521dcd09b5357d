//! Boot parameters: what the launcher tells each kernel, as text in the QEMU firmware
//! configuration item [`FW_CFG_NAME`].
//!
//! The text is `key=value` lines. Unknown keys, missing keys and bad values are errors: a kernel
//! that does not understand its parameters does not start. Both ends use this module, so what
//! [`BootParams`] displays is what [`BootParams::parse`] reads.

use core::fmt;

use crate::ident::{MAX_CPUS, MAX_NODES};
use crate::service::Grant;
use crate::service::memory::{MAX_BLOCK, MIN_BLOCK, is_block_size};
use crate::service::peer::{Delay, Kernels, RingPlace, Transport};
use crate::{CpuId, Isa, NodeId};

/// Name of the firmware configuration item.
pub const FW_CFG_NAME: &str = "opt/dyad/boot";
/// Longest parameter text a kernel reads.
pub const MAX_TEXT: usize = 16 * 1024;

/// Physical distance between local pools; pool `n` starts at `LOCAL_STRIDE * (n + 1)`.
pub const LOCAL_STRIDE: u64 = 0x4_0000_0000;
/// Physical start of the CXL pool.
pub const CXL_BASE: u64 = 0x40_0000_0000;
/// Pools are whole multiples of this.
pub const POOL_GRANULE: u64 = 2 << 20;
/// Smallest pool.
pub const MIN_POOL: u64 = 32 << 20;
/// Largest CXL pool (x86-64 machines must stay below 1012 GiB of physical addresses).
pub const MAX_CXL: u64 = 512 << 30;

/// Bytes of a block of memory, unless the launcher says otherwise.
pub const DEFAULT_BLOCK: u64 = MIN_BLOCK;
/// Rounds of quiescence per second, unless the launcher says otherwise.
pub const DEFAULT_ROUNDS: u64 = 30;
/// Most rounds per second.
pub const MAX_ROUNDS: u64 = 10_000;

/// Longest delay of a message, and of a KiB of its contents, in nanoseconds.
pub const MAX_DELAY_NS: u64 = 1_000_000_000;

/// Vectors of a machine's doorbell device: doorbells by CPU, timers by CPU, the
/// [fence](fence_vector).
pub const fn doorbell_vectors(cpus: usize) -> usize {
    2 * cpus + 1
}

/// The vector that interrupts a CPU because another has rung.
pub const fn doorbell_vector(cpu: CpuId) -> usize {
    cpu.index()
}

/// The vector by which the simulator interrupts a CPU at its deadline.
pub const fn timer_vector(cpus: usize, cpu: CpuId) -> usize {
    cpus + cpu.index()
}

/// The last vector. It interrupts no CPU: machines keep it masked, and the simulator rings it to learn that
/// everything rung before has reached the interrupt controller.
pub const fn fence_vector(cpus: usize) -> usize {
    2 * cpus
}

/// Physical start of the local pool of a node.
pub const fn local_pool_base(node: NodeId) -> u64 {
    LOCAL_STRIDE * (node.index() as u64 + 1)
}

/// The work of the kernels once they have joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootMode {
    /// Run the program in the bundle.
    App,
    /// Run the in-kernel tests named in `ktests`, in that order.
    Ktest,
}

/// The consequence of a node's death for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDeath {
    /// The run ends.
    End,
    /// The others go on.
    Survive,
    /// The others go on and the node is started again.
    Restart,
}

impl OnDeath {
    /// All choices, for command lines.
    pub const ALL: [OnDeath; 3] = [OnDeath::End, OnDeath::Survive, OnDeath::Restart];

    /// Name on command lines and in boot parameters.
    pub const fn name(self) -> &'static str {
        match self {
            OnDeath::End => "end",
            OnDeath::Survive => "survive",
            OnDeath::Restart => "restart",
        }
    }
}

/// The source of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// The machine's own counters and timers, which follow the host's time.
    Hardware,
    /// The simulator's clock: only executed instructions take time.
    Fused,
}

impl ClockKind {
    /// Both.
    pub const ALL: [ClockKind; 2] = [ClockKind::Hardware, ClockKind::Fused];

    /// Name in boot parameters.
    pub const fn name(self) -> &'static str {
        match self {
            ClockKind::Hardware => "hardware",
            ClockKind::Fused => "fused",
        }
    }
}

/// The boot parameters of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootParams<'a> {
    /// The number of this node.
    pub node: NodeId,
    /// ISA of every node, by node number; entries from `node_count` on are meaningless.
    pub isas: [Isa; MAX_NODES],
    /// Number of nodes of the system, 2 to [`MAX_NODES`].
    pub node_count: usize,
    /// CPUs of every node, 1 to [`MAX_CPUS`].
    pub cpus: usize,
    /// Size of every local pool in bytes.
    pub local_size: u64,
    /// Size of the CXL pool in bytes.
    pub cxl_size: u64,
    /// The page-aligned offset of the program bundle in the CXL pool.
    pub bundle_offset: u64,
    /// Length of the bundle in bytes; 0 if there is none.
    pub bundle_len: u64,
    /// The work of the kernels.
    pub mode: BootMode,
    /// The consequence of a node's death.
    pub on_death: OnDeath,
    /// Bound on every wait during boot, in milliseconds.
    pub boot_timeout_ms: u64,
    /// Whether the caches of the nodes count as coherent.
    pub coherent: bool,
    /// The source of time.
    pub clock: ClockKind,
    /// Rounds of quiescence that each node aims at per second.
    pub rounds_per_second: u64,
    /// Whether the first node compares all tables with each other at the end of the run.
    pub audit: bool,
    /// The program's capabilities beyond those of every program.
    pub grant: Grant,
    /// How the kernels work together.
    pub kernels: Kernels,
    /// How messages between kernels travel.
    pub transport: Transport,
    /// Where the peers' rings lie.
    pub ring_place: RingPlace,
    /// How long they are in transit.
    pub delay: Delay,
    /// Whether the parts of a fault that needs another kernel are measured.
    pub fault_parts: bool,
    /// Bytes of a block of memory, as init's [block allocator](crate::service::memory) hands them out.
    pub block_size: u64,
    /// Name of the program, for records.
    pub app: &'a str,
    /// Argument text of the program, one line.
    pub args: &'a str,
    /// The environment of the program: `NAME=VALUE` texts, separated by tabs.
    pub env: &'a str,
    /// Wall-clock time when the machines were started, in nanoseconds since 1970-01-01 UTC.
    pub wall_ns: u64,
    /// Seed of the random numbers of programs.
    pub random: u64,
    /// Names of in-kernel tests, separated by commas.
    pub ktests: &'a str,
    /// Test option: XORed into this node's layout hash, to show that a mismatch is refused.
    pub test_layout_xor: u64,
    /// For kernels with tests: the call, as `file:line`, that omits its flush. Empty means none.
    pub test_seeded: &'a str,
}

/// The reasons why a parameter text was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamError<'a> {
    /// A line has no `=`.
    NoEquals(&'a str),
    /// An unknown key.
    UnknownKey(&'a str),
    /// A key given twice.
    Twice(&'a str),
    /// A value that cannot be read or is out of range.
    BadValue(&'static str, &'a str),
    /// A key that must be there is not.
    Missing(&'static str),
    /// Written for another ABI version.
    BadVersion(&'a str),
}

impl fmt::Display for ParamError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamError::NoEquals(l) => write!(f, "line without '=': {l:?}"),
            ParamError::UnknownKey(k) => write!(f, "unknown key {k:?}"),
            ParamError::Twice(k) => write!(f, "key {k:?} given twice"),
            ParamError::BadValue(k, v) => write!(f, "bad value for {k}: {v:?}"),
            ParamError::Missing(k) => write!(f, "missing key {k}"),
            ParamError::BadVersion(v) => write!(
                f,
                "parameters are for ABI version {v}, this kernel has {}",
                crate::ABI_VERSION
            ),
        }
    }
}

const KEYS: [&str; 31] = [
    "abi",
    "node",
    "nodes",
    "cpus",
    "local",
    "cxl",
    "bundle_offset",
    "bundle_len",
    "mode",
    "on_death",
    "boot_timeout_ms",
    "coherence",
    "clock",
    "rounds",
    "audit",
    "grant",
    "kernels",
    "transport",
    "ring_place",
    "message_ns",
    "kib_ns",
    "fault_parts",
    "block",
    "app",
    "args",
    "env",
    "wall",
    "random",
    "ktests",
    "test_layout_xor",
    "test_seeded",
];

impl<'a> BootParams<'a> {
    /// Parses a parameter text.
    ///
    /// # Errors
    ///
    /// See [`ParamError`].
    pub fn parse(text: &'a str) -> Result<BootParams<'a>, ParamError<'a>> {
        let mut values: [Option<&'a str>; KEYS.len()] = [None; KEYS.len()];
        for line in text.lines().filter(|l| !l.is_empty()) {
            let (key, value) = line.split_once('=').ok_or(ParamError::NoEquals(line))?;
            let i = KEYS
                .iter()
                .position(|&k| k == key)
                .ok_or(ParamError::UnknownKey(key))?;
            if values[i].replace(value).is_some() {
                return Err(ParamError::Twice(key));
            }
        }
        let get = |key: &'static str| -> Result<&'a str, ParamError<'a>> {
            KEYS.iter()
                .position(|&k| k == key)
                .and_then(|i| values[i])
                .ok_or(ParamError::Missing(key))
        };
        let num = |key: &'static str, lo: u64, hi: u64| -> Result<u64, ParamError<'a>> {
            let v = get(key)?;
            v.parse()
                .ok()
                .filter(|n| (lo..=hi).contains(n))
                .ok_or(ParamError::BadValue(key, v))
        };
        if get("abi")?.parse() != Ok(crate::ABI_VERSION) {
            return Err(ParamError::BadVersion(get("abi")?));
        }
        let names = get("nodes")?;
        let mut isas = [Isa::X86_64; MAX_NODES];
        let mut node_count = 0;
        for name in names.split(',') {
            if node_count == MAX_NODES {
                return Err(ParamError::BadValue("nodes", names));
            }
            isas[node_count] = Isa::parse(name).ok_or(ParamError::BadValue("nodes", names))?;
            node_count += 1;
        }
        if node_count < 2 {
            return Err(ParamError::BadValue("nodes", names));
        }
        let pool = |key, hi| -> Result<u64, ParamError<'a>> {
            let n = num(key, MIN_POOL, hi)?;
            if n % POOL_GRANULE != 0 {
                return Err(ParamError::BadValue(key, get(key)?));
            }
            Ok(n)
        };
        let node = num("node", 0, node_count as u64 - 1)?;
        let cxl_size = pool("cxl", MAX_CXL)?;
        let bundle_offset = num("bundle_offset", 0, cxl_size)?;
        if bundle_offset % crate::user::PAGE_SIZE != 0 {
            return Err(ParamError::BadValue("bundle_offset", get("bundle_offset")?));
        }
        Ok(BootParams {
            node: NodeId::new(node).ok_or(ParamError::Missing("node"))?,
            isas,
            node_count,
            cpus: num("cpus", 1, MAX_CPUS as u64)? as usize,
            local_size: pool("local", LOCAL_STRIDE)?,
            cxl_size,
            bundle_offset,
            bundle_len: num("bundle_len", 0, cxl_size - bundle_offset)?,
            mode: match get("mode")? {
                "app" => BootMode::App,
                "ktest" => BootMode::Ktest,
                v => return Err(ParamError::BadValue("mode", v)),
            },
            on_death: named("on_death", get("on_death")?, &OnDeath::ALL, OnDeath::name)?,
            boot_timeout_ms: num("boot_timeout_ms", 100, 3_600_000)?,
            coherent: match get("coherence")? {
                "coherent" => true,
                "incoherent" => false,
                v => return Err(ParamError::BadValue("coherence", v)),
            },
            clock: named("clock", get("clock")?, &ClockKind::ALL, ClockKind::name)?,
            rounds_per_second: num("rounds", 1, MAX_ROUNDS)?,
            audit: num("audit", 0, 1)? == 1,
            grant: named("grant", get("grant")?, &Grant::ALL, Grant::name)?,
            kernels: named("kernels", get("kernels")?, &Kernels::ALL, Kernels::name)?,
            transport: named(
                "transport",
                get("transport")?,
                &Transport::ALL,
                Transport::name,
            )?,
            ring_place: named(
                "ring_place",
                get("ring_place")?,
                &RingPlace::ALL,
                RingPlace::name,
            )?,
            delay: Delay {
                message_ns: num("message_ns", 0, MAX_DELAY_NS)? as u32,
                kib_ns: num("kib_ns", 0, MAX_DELAY_NS)? as u32,
            },
            fault_parts: num("fault_parts", 0, 1)? == 1,
            block_size: num("block", MIN_BLOCK, MAX_BLOCK).and_then(|n| {
                match is_block_size(n) {
                    true => Ok(n),
                    false => Err(ParamError::BadValue("block", get("block")?)),
                }
            })?,
            app: get("app")?,
            args: get("args")?,
            env: get("env")?,
            wall_ns: num("wall", 0, u64::MAX)?,
            random: num("random", 0, u64::MAX)?,
            ktests: get("ktests")?,
            test_layout_xor: num("test_layout_xor", 0, u64::MAX)?,
            test_seeded: get("test_seeded")?,
        })
    }

    /// ISAs of the nodes that exist.
    pub fn node_isas(&self) -> &[Isa] {
        &self.isas[..self.node_count]
    }
}

/// The value with a name.
fn named<'a, T: Copy>(
    key: &'static str,
    name: &'a str,
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
) -> Result<T, ParamError<'a>> {
    let found = all.iter().find(|&&value| name_of(value) == name);
    found.copied().ok_or(ParamError::BadValue(key, name))
}

impl fmt::Display for BootParams<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "abi={}", crate::ABI_VERSION)?;
        writeln!(f, "node={}", self.node)?;
        f.write_str("nodes=")?;
        for (i, isa) in self.node_isas().iter().enumerate() {
            write!(f, "{}{isa}", if i == 0 { "" } else { "," })?;
        }
        writeln!(f, "\ncpus={}", self.cpus)?;
        writeln!(f, "local={}\ncxl={}", self.local_size, self.cxl_size)?;
        writeln!(f, "bundle_offset={}", self.bundle_offset)?;
        writeln!(f, "bundle_len={}", self.bundle_len)?;
        let mode = match self.mode {
            BootMode::App => "app",
            BootMode::Ktest => "ktest",
        };
        writeln!(f, "mode={mode}\non_death={}", self.on_death.name())?;
        writeln!(f, "boot_timeout_ms={}", self.boot_timeout_ms)?;
        let coherence = if self.coherent {
            "coherent"
        } else {
            "incoherent"
        };
        writeln!(
            f,
            "coherence={coherence}\nclock={}\nrounds={}\naudit={}",
            self.clock.name(),
            self.rounds_per_second,
            u64::from(self.audit)
        )?;
        writeln!(f, "grant={}\nblock={}", self.grant.name(), self.block_size)?;
        writeln!(f, "kernels={}", self.kernels.name())?;
        writeln!(f, "transport={}", self.transport.name())?;
        writeln!(f, "ring_place={}", self.ring_place.name())?;
        let Delay { message_ns, kib_ns } = self.delay;
        writeln!(f, "message_ns={message_ns}\nkib_ns={kib_ns}")?;
        writeln!(f, "fault_parts={}", u64::from(self.fault_parts))?;
        writeln!(f, "app={}\nargs={}", self.app, self.args)?;
        writeln!(f, "env={}", self.env)?;
        // Of one length, so that kernels take equally long to read it.
        writeln!(f, "wall={:020}\nrandom={:020}", self.wall_ns, self.random)?;
        writeln!(f, "ktests={}", self.ktests)?;
        writeln!(f, "test_layout_xor={}", self.test_layout_xor)?;
        writeln!(f, "test_seeded={}", self.test_seeded)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::string::{String, ToString};

    fn sample() -> BootParams<'static> {
        let mut isas = [Isa::X86_64; MAX_NODES];
        isas[1] = Isa::Aarch64;
        BootParams {
            node: NodeId::new(1).unwrap(),
            isas,
            node_count: 2,
            cpus: 2,
            local_size: 64 << 20,
            cxl_size: 256 << 20,
            bundle_offset: 128 << 20,
            bundle_len: 12345,
            mode: BootMode::App,
            on_death: OnDeath::Survive,
            boot_timeout_ms: 30_000,
            coherent: true,
            clock: ClockKind::Fused,
            rounds_per_second: DEFAULT_ROUNDS,
            audit: true,
            grant: Grant::All,
            kernels: Kernels::Multiple,
            transport: Transport::Poll,
            ring_place: RingPlace::Cxl,
            delay: Delay::TCP,
            fault_parts: true,
            block_size: DEFAULT_BLOCK,
            app: "hop",
            args: "--class S",
            env: "HOME=a b\tTERM=",
            wall_ns: u64::MAX,
            random: 7,
            ktests: "",
            test_layout_xor: 0,
            test_seeded: "",
        }
    }

    #[test]
    fn displays_what_it_parses() {
        let text = sample().to_string();
        assert_eq!(BootParams::parse(&text), Ok(sample()));
    }

    #[test]
    fn refuses_bad_texts() {
        let text = sample().to_string();
        let with = |from: &str, to: &str| text.replace(from, to);
        let bad: [(String, &str); 8] = [
            (with("cpus=2", "cpus=9"), "bad value for cpus: \"9\""),
            (with("cpus=2\n", ""), "missing key cpus"),
            (with("cpus=2", "cpus=2\ncpus=2"), "key \"cpus\" given twice"),
            (with("cpus=2", "cpu=2"), "unknown key \"cpu\""),
            (with("cpus=2", "cpus"), "line without '=': \"cpus\""),
            (
                with("x86_64,aarch64", "x86_64"),
                "bad value for nodes: \"x86_64\"",
            ),
            (
                with("local=67108864", "local=67108865"),
                "bad value for local: \"67108865\"",
            ),
            (
                with("abi=1", "abi=7"),
                "parameters are for ABI version 7, this kernel has 1",
            ),
        ];
        for (text, message) in &bad {
            assert_eq!(BootParams::parse(text).unwrap_err().to_string(), *message);
        }
    }

    #[test]
    fn every_vector_is_for_one_purpose() {
        for cpus in 1..=MAX_CPUS {
            let mut used = [false; 2 * MAX_CPUS + 1];
            let mut take = |v: usize| assert!(!core::mem::replace(&mut used[v], true));
            for cpu in CpuId::first(cpus) {
                take(doorbell_vector(cpu));
                take(timer_vector(cpus, cpu));
            }
            take(fence_vector(cpus));
            assert_eq!(used.iter().filter(|u| **u).count(), doorbell_vectors(cpus));
            assert_eq!(fence_vector(cpus) + 1, doorbell_vectors(cpus));
        }
    }
}
