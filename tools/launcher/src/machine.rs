//! The command line of one machine, as a checked structure.
//!
//! [`Machine::command`] is the only way to a [`Command`], and it passes every set of flags
//! through [`check`]: a machine without multi-threaded TCG or with a single possible CPU would
//! run, but its atomic operations would not be atomic with respect to the other machines.

use std::fmt;
use std::path::{Path, PathBuf};

use dyad_abi::boot::{FW_CFG_NAME, doorbell_vectors};
use dyad_abi::{Isa, NodeId};
use dyad_shm::PoolId;

/// Start of RAM that is private to a machine, and how much of it lies below the first pool.
const fn private_ram(isa: Isa) -> u64 {
    let first_pool = PoolId::Local(match NodeId::new(0) {
        Some(n) => n,
        None => unreachable!(),
    });
    match isa {
        // 2 GiB below the hole that ends at 4 GiB, and the rest above it.
        Isa::X86_64 => first_pool.base().0 - (2 << 30),
        // RAM starts at 1 GiB.
        Isa::Aarch64 => first_pool.base().0 - (1 << 30),
    }
}

/// A stretch of a machine's physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Memory of the machine itself, or filler between pools that nobody touches.
    Own(u64),
    /// A pool, with its size.
    Pool(PoolId, u64),
}

impl Span {
    const fn bytes(self) -> u64 {
        match self {
            Span::Own(n) | Span::Pool(_, n) => n,
        }
    }
}

/// A machine's memory in address order: pools lie where every machine sees them, with filler
/// between.
pub fn memory_plan(isa: Isa, nodes: usize, local: u64, cxl: u64) -> Vec<Span> {
    let mut spans = vec![Span::Own(private_ram(isa))];
    let mut at = PoolId::Local(NodeId::first(1).next().expect("there is a node 0"))
        .base()
        .0;
    let pools = NodeId::first(nodes)
        .map(|n| (PoolId::Local(n), local))
        .chain([(PoolId::Cxl, cxl)]);
    for (pool, bytes) in pools {
        if pool.base().0 > at {
            spans.push(Span::Own(pool.base().0 - at));
        }
        spans.push(Span::Pool(pool, bytes));
        at = pool.base().0 + bytes;
    }
    spans
}

/// A machine to be started.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its instruction set.
    pub isa: Isa,
    /// The emulator.
    pub qemu: PathBuf,
    /// CPUs it starts with.
    pub cpus: usize,
    /// Its memory.
    pub memory: Vec<Span>,
    /// Paths under which the pools can be opened, by pool index.
    pub pool_paths: Vec<PathBuf>,
    /// The kernel image.
    pub kernel: PathBuf,
    /// File with the boot parameters.
    pub boot_file: PathBuf,
    /// Abstract name of the doorbell broker's socket.
    pub doorbell: String,
    /// Port of the debugger stub; the machine starts stopped.
    pub gdb: Option<u16>,
    /// Plugin to load, with its options.
    pub plugin: Option<String>,
    /// Test option: plugins that are not ours, with their options, and where their output goes.
    pub plugins: Vec<String>,
    /// File for what those print.
    pub plugins_log: PathBuf,
    /// Test option: leave out `maxcpus`.
    pub no_maxcpus: bool,
}

/// A checked command line.
#[derive(Clone, Debug)]
pub struct Command {
    program: PathBuf,
    flags: Vec<Flag>,
}

/// An option of QEMU and its value, if it has one.
pub type Flag = (&'static str, Option<String>);

/// Why a set of flags was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlagError {
    /// `-accel` is missing, given twice, or not multi-threaded TCG.
    Accelerator(String),
    /// `-smp` does not allow for a second CPU.
    MaxCpus(String),
    /// `-icount` turns multi-threading off.
    Icount,
}

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlagError::Accelerator(found) => write!(
                f,
                "a machine must run with `-accel tcg,thread=multi`, not {found:?}: otherwise its \
                 atomic operations are not atomic for the other machines"
            ),
            FlagError::MaxCpus(found) => write!(
                f,
                "a machine must run with `maxcpus` of at least 2, not `-smp {found}`: otherwise \
                 its atomic operations are not atomic for the other machines"
            ),
            FlagError::Icount => f.write_str(
                "a machine must not run with `-icount`: it turns off multi-threading and with it \
                 atomic operations between machines",
            ),
        }
    }
}

impl std::error::Error for FlagError {}

/// Checks the rules that every machine must obey.
///
/// # Errors
///
/// The first rule broken.
pub fn check(flags: &[Flag], no_maxcpus: bool) -> Result<(), FlagError> {
    let values = |name: &str| -> Vec<&str> {
        flags
            .iter()
            .filter(|(n, _)| *n == name)
            .map(|(_, v)| v.as_deref().unwrap_or_default())
            .collect()
    };
    let accel = values("-accel");
    let [only] = accel[..] else {
        return Err(FlagError::Accelerator(accel.join(" ")));
    };
    let mut parts = only.split(',');
    if parts.next() != Some("tcg") || !parts.any(|p| p == "thread=multi") {
        return Err(FlagError::Accelerator(only.into()));
    }
    if !values("-icount").is_empty() {
        return Err(FlagError::Icount);
    }
    let smp = values("-smp");
    let [only] = smp[..] else {
        return Err(FlagError::MaxCpus(smp.join(" ")));
    };
    let max = only
        .split(',')
        .find_map(|p| p.strip_prefix("maxcpus="))
        .and_then(|n| n.parse::<u32>().ok());
    if max.is_none_or(|n| n < 2) && !no_maxcpus {
        return Err(FlagError::MaxCpus(only.into()));
    }
    Ok(())
}

/// A path inside an option's value: commas are doubled.
pub fn quoted(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

impl Machine {
    /// The command that starts it.
    ///
    /// # Errors
    ///
    /// See [`check`].
    pub fn command(&self) -> Result<Command, FlagError> {
        let flags = self.flags();
        check(&flags, self.no_maxcpus)?;
        Ok(Command {
            program: self.qemu.clone(),
            flags,
        })
    }

    fn flags(&self) -> Vec<Flag> {
        let mut f: Vec<Flag> = Vec::new();
        let mut add = |name, value: String| f.push((name, Some(value)));
        let max = if self.no_maxcpus {
            self.cpus
        } else {
            self.cpus.max(2)
        };
        match self.isa {
            Isa::X86_64 => {
                add(
                    "-M",
                    "q35,sata=off,smbus=off,usb=off,hpet=off,max-ram-below-4g=2G".into(),
                );
                // No random numbers: a run should depend on its inputs only.
                add("-cpu", "max,rdrand=off,rdseed=off".into());
            }
            Isa::Aarch64 => {
                add("-M", "virt,gic-version=2,highmem-ecam=off".into());
                add("-cpu", "max".into());
            }
        }
        add("-accel", "tcg,thread=multi".into());
        add(
            "-smp",
            if self.no_maxcpus {
                self.cpus.to_string()
            } else {
                format!("{},maxcpus={max}", self.cpus)
            },
        );
        let total: u64 = self.memory.iter().map(|s| s.bytes()).sum();
        add("-m", format!("{}M", total >> 20));
        for (i, span) in self.memory.iter().enumerate() {
            let backend = match span {
                Span::Own(bytes) => {
                    format!("memory-backend-ram,id=m{i},reserve=off,size={bytes}")
                }
                Span::Pool(pool, bytes) => format!(
                    "memory-backend-file,id=m{i},share=on,size={bytes},mem-path={}",
                    quoted(&self.pool_paths[pool.index()])
                ),
            };
            add("-object", backend);
            let cpus = match i {
                0 => format!(",cpus=0-{}", max - 1),
                _ => String::new(),
            };
            add("-numa", format!("node,nodeid={i},memdev=m{i}{cpus}"));
        }
        add("-display", "none".into());
        add("-serial", "stdio".into());
        add("-monitor", "none".into());
        add(
            "-chardev",
            format!("socket,id=doorbell,abstract=on,path={}", self.doorbell),
        );
        add(
            "-device",
            format!(
                "ivshmem-doorbell,chardev=doorbell,vectors={},addr=0x8",
                doorbell_vectors(self.cpus)
            ),
        );
        add(
            "-fw_cfg",
            format!("name={FW_CFG_NAME},file={}", quoted(&self.boot_file)),
        );
        match self.isa {
            Isa::X86_64 => {
                // The fast firmware; QEMU finds it among its own data.
                add("-bios", "qboot.rom".into());
                add("-device", "isa-debug-exit,iobase=0xf4,iosize=4".into());
            }
            Isa::Aarch64 => add("-semihosting-config", "enable=on,target=native".into()),
        }
        if let Some(port) = self.gdb {
            add("-gdb", format!("tcp:127.0.0.1:{port}"));
        }
        if let Some(plugin) = &self.plugin {
            add("-plugin", plugin.clone());
        }
        for plugin in &self.plugins {
            add("-plugin", plugin.clone());
        }
        if !self.plugins.is_empty() {
            add("-d", "plugin".into());
            add("-D", self.plugins_log.display().to_string());
        }
        add("-kernel", self.kernel.display().to_string());
        f.push(("-nodefaults", None));
        f.push(("-no-reboot", None));
        if self.gdb.is_some() {
            f.push(("-S", None));
        }
        f
    }
}

impl Command {
    /// The process to spawn. It dies with the thread that spawns it, whatever ends that one.
    pub fn process(&self) -> std::process::Command {
        let mut c = std::process::Command::new("setpriv");
        c.args(["--pdeathsig", "KILL", "--"]).arg(&self.program);
        for (name, value) in &self.flags {
            c.arg(name).args(value);
        }
        c
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.program.display())?;
        for (name, value) in &self.flags {
            write!(f, " {name}")?;
            if let Some(value) = value {
                write!(f, " {value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(isa: Isa) -> Machine {
        Machine {
            isa,
            qemu: "qemu".into(),
            cpus: 1,
            memory: memory_plan(isa, 2, 64 << 20, 128 << 20),
            pool_paths: (0..9).map(|i| format!("/p{i}").into()).collect(),
            kernel: "k".into(),
            boot_file: "/with,comma".into(),
            doorbell: "d".into(),
            gdb: None,
            plugin: None,
            plugins: Vec::new(),
            plugins_log: "l".into(),
            no_maxcpus: false,
        }
    }

    #[test]
    fn pools_lie_at_the_same_addresses_everywhere() {
        for isa in Isa::ALL {
            for nodes in 2..=8 {
                for local in [32 << 20, 16 << 30] {
                    let mut at = match isa {
                        Isa::X86_64 => 2 << 30,
                        Isa::Aarch64 => 1 << 30,
                    };
                    let mut seen = 0;
                    for span in memory_plan(isa, nodes, local, 1 << 30) {
                        assert_ne!(span.bytes(), 0);
                        if let Span::Pool(pool, bytes) = span {
                            assert_eq!(pool.base().0, at);
                            let size = if pool == PoolId::Cxl { 1 << 30 } else { local };
                            assert_eq!(bytes, size);
                            seen += 1;
                        }
                        at += span.bytes();
                    }
                    assert_eq!(seen, nodes + 1);
                }
            }
        }
    }

    #[test]
    fn every_machine_obeys_the_rules() {
        for isa in Isa::ALL {
            for cpus in [1, 2, 8] {
                let m = Machine {
                    cpus,
                    ..machine(isa)
                };
                let text = m.command().unwrap().to_string();
                assert!(text.contains("-accel tcg,thread=multi"), "{text}");
                assert!(text.contains(&format!("maxcpus={}", cpus.max(2))), "{text}");
                assert!(text.contains("file=/with,,comma"), "{text}");
            }
        }
        let mut m = machine(Isa::X86_64);
        m.no_maxcpus = true;
        assert!(m.command().unwrap().to_string().contains("-smp 1 "));
    }

    #[test]
    fn plugins_of_others_come_after_ours() {
        let mut m = machine(Isa::Aarch64);
        m.plugin = Some("ours".into());
        assert!(!m.command().unwrap().to_string().contains("-d plugin"));
        m.plugins = vec!["a,x=1".into(), "b".into()];
        let text = m.command().unwrap().to_string();
        let all = "-plugin ours -plugin a,x=1 -plugin b -d plugin -D l ";
        assert!(text.contains(all), "{text}");
    }

    #[test]
    fn flags_that_break_atomics_are_refused() {
        let set = |accel: &str, smp: &str| -> Vec<Flag> {
            vec![("-accel", Some(accel.into())), ("-smp", Some(smp.into()))]
        };
        let refused = |f: &[Flag]| check(f, false).unwrap_err();
        assert_eq!(
            check(&set("tcg,thread=multi", "1,maxcpus=2"), false),
            Ok(())
        );
        for accel in ["tcg", "tcg,thread=single", "kvm", "kvm,thread=multi"] {
            let e = refused(&set(accel, "2,maxcpus=2"));
            assert_eq!(e, FlagError::Accelerator(accel.into()));
        }
        for smp in ["1", "1,maxcpus=1", "2", "1,maxcpus=x"] {
            let e = refused(&set("tcg,thread=multi", smp));
            assert_eq!(e, FlagError::MaxCpus(smp.into()));
        }
        let mut twice = set("tcg,thread=multi", "1,maxcpus=2");
        twice.push(("-accel", Some("tcg,thread=single".into())));
        assert!(matches!(refused(&twice), FlagError::Accelerator(_)));
        let mut icount = set("tcg,thread=multi", "1,maxcpus=2");
        icount.push(("-icount", Some("0".into())));
        assert_eq!(refused(&icount), FlagError::Icount);
        assert_eq!(check(&set("tcg,thread=multi", "1"), true), Ok(()));
        assert!(check(&set("tcg", "1"), true).is_err());
        assert!(refused(&[]).to_string().contains("-accel tcg,thread=multi"));
    }
}
