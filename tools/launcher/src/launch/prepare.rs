//! Everything that must be there before the first machine starts.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use dyad_abi::boot::{BootMode, BootParams, ClockKind, MAX_TEXT, POOL_GRANULE, doorbell_vectors};
use dyad_abi::ident::{ISA_COUNT, MAX_NODES};
use dyad_abi::service::program;
use dyad_abi::{Isa, NodeId};
use dyad_shm::PoolId;
use dyad_sim_model::clock::words::{self, CLOCK_WORDS};
use dyad_sim_model::config::{Coherence, Level, Order, SimConfig};
use dyad_sim_model::incoherent::Shape;
use dyad_sim_model::shared::Areas;

use super::dir::{config_file, keep, plugins_file, sim_file, trace_file, write};
use super::node::Node;
use super::{Event, RunReport, Sink};
use crate::apps::{Program, Source};
use crate::ask::Named;
use crate::ask::channel::Channel;
use crate::ask::server::Server;
use crate::broker::Broker;
use crate::config::{RunConfig, Work};
use crate::error::Error;
use crate::machine::{Machine, memory_plan, quoted};
use crate::pools::{Pools, SharedWords};
use crate::sim::versions::{self, Image, Versions};
use crate::sim::{Outcome, vectors};
use crate::symbol::Symboliser;
use crate::{apps, archive, build, paths, setup, signals, size};

/// Bound on every wait of a booting kernel.
const BOOT_TIMEOUT_MS: u64 = 60_000;

/// What the build has produced.
pub(super) struct Built {
    kernels: [Option<PathBuf>; ISA_COUNT],
    program: Option<Program>,
    /// Init and the services, with their names.
    services: Vec<(&'static str, Program)>,
    /// Init, the services and the program; empty if there is no program.
    archive: Vec<u8>,
    /// The program and the one beside it.
    names: Vec<String>,
    plugin: Option<PathBuf>,
}

/// Builds the kernels of the ISAs in use, the services and the program.
pub(super) fn build(config: &RunConfig, sink: &mut dyn Sink) -> Result<Built, Error> {
    let mut progress = |said: build::Said<'_>| sink.event(said.into());
    // A name that is wrong should be said before anything is built.
    let kind = if matches!(config.work, Work::Ktest(_)) || !config.test.seeded.is_empty() {
        build::Kernel::Ktest
    } else if config.is_sanitized() {
        build::Kernel::Listed
    } else {
        build::Kernel::Plain
    };
    let (source, mut program) = match &config.work {
        Work::App { app, .. } => match apps::find(app)? {
            // So should a bundle that is damaged.
            bundle @ Source::Bundle(_) => (None, Some(build::app(&bundle, &mut progress)?)),
            package @ Source::Package(_) => (Some(package), None),
        },
        Work::Ktest(_) => (None, None),
    };
    let mut kernels = [None, None];
    for isa in Isa::ALL.into_iter().filter(|i| config.nodes.contains(i)) {
        let image = match &config.test.kernel[isa.index()] {
            Some(stand_in) => stand_in.clone(),
            None => build::kernel_with(isa, kind, config.fastpaths, &mut progress)?,
        };
        kernels[isa.index()] = Some(image);
    }
    if let Some(source) = source {
        program = Some(build::app(&source, &mut progress)?);
    }
    // Stand-ins for kernels start nothing, so there is nothing to be started.
    let starts = |isa: &Isa| config.test.kernel[isa.index()].is_none();
    let mut names = Vec::new();
    let mut services = Vec::new();
    let archive = match &program {
        Some(program) if config.test.bare => archive::pack(&[("init", program.bundle.as_slice())])?,
        Some(program) => {
            services = match config.nodes.iter().any(starts) {
                true => build::services(&mut progress)?,
                false => Vec::new(),
            };
            let beside = match &config.test.beside {
                Some(app) => Some(build::app(&apps::find(app)?, &mut progress)?),
                None => None,
            };
            let programs: Vec<&_> = [program].into_iter().chain(&beside).collect();
            names.push(config.work_name().into());
            names.extend(config.test.beside.clone());
            build::archive(&services, &programs, &config.input)?
        }
        None => Vec::new(),
    };
    let plugin = match (config.sim.level(), &config.test.plugin) {
        (None, _) => None,
        (Some(_), Some(stand_in)) => Some(stand_in.clone()),
        (Some(_), None) => Some(build::plugin(&mut progress)?),
    };
    if signals::count() > 0 {
        return Err(Error::Interrupted);
    }
    Ok(Built {
        kernels,
        program,
        services: build::SERVICES.into_iter().zip(services).collect(),
        archive,
        names,
        plugin,
    })
}

/// What the clocks of all machines share.
#[derive(Debug)]
pub(super) struct Clock {
    words: SharedWords,
    /// For how long a machine that has been stopped is waited for, in milliseconds; 0: for ever.
    patience_ms: u64,
}

impl Clock {
    fn create(config: &RunConfig) -> Result<Clock, Error> {
        let strict = matches!(
            config.simulation()?.map(|s| s.clock.order),
            Some(Order::Strict { .. })
        );
        Ok(Clock {
            words: SharedWords::create(&config.shm_dir, CLOCK_WORDS)?,
            // Under a debugger, in an order that is to be repeated, the whole system stops with a
            // machine.
            patience_ms: if strict && config.gdb { 0 } else { 1000 },
        })
    }

    /// The machine of a node, which was this process, has ended.
    pub(super) fn mark_ended(&self, node: NodeId, pid: u32) {
        // Without it the others find out by themselves, later.
        let _ = self.words.write(words::dead(node.index()), u64::from(pid));
    }

    /// What the plugins need for it.
    fn options(&self, pools: &Pools, broker: &Broker) -> String {
        format!(
            ",clock={},pages={},doorbells={},patience_ms={}",
            quoted(&self.words.path()),
            quoted(&pools.paths()[PoolId::Cxl.index()]),
            broker.watch_socket(),
            self.patience_ms
        )
    }
}

/// A system whose machines have not been started.
pub(super) struct System {
    /// Takes questions about it; first, so that it ends before what it looks at.
    pub(super) questions: Server,
    pub(super) pools: Pools,
    pub(super) clock: Option<Clock>,
    pub(super) broker: Broker,
    pub(super) nodes: Vec<Node>,
    /// What the plugins share; it lives as long as the machines.
    _caches: Option<SharedWords>,
    /// What their sanitizers share.
    _sanitizer: Option<SharedWords>,
}

impl System {
    /// Makes pools, broker, boot files and command lines, in the run's directory, and says in the
    /// report what is simulated by what.
    pub(super) fn new(
        config: &RunConfig,
        built: Built,
        RunReport {
            dir,
            simulation: outcome,
            ..
        }: &mut RunReport,
        sink: &mut dyn Sink,
    ) -> Result<System, Error> {
        let archive = built.archive.as_slice();
        let archive_offset = archive_offset(config.mem_cxl, archive.len() as u64)?;
        let pools = Pools::create(
            &config.shm_dir,
            config.nodes.len(),
            config.mem_local,
            config.mem_cxl,
            config.test.shm_limit,
        )?;
        pools.write_cxl(archive_offset, archive)?;
        let broker = Broker::start(doorbell_vectors(config.cpus))
            .map_err(|e| Error::io("cannot start the doorbell broker", e))?;
        let questions = questions(config, &built.names, dir, &pools, &broker)
            .map_err(|e| Error::io("cannot take questions about the run", e))?;
        let simulation = config.simulation()?;
        if let Some(simulation) = &simulation {
            write(&config_file(dir), &format!("{}\n", pretty(simulation)?))?;
            let versions = versions(config, &built);
            let changes = config.setup.changes();
            outcome.replace(Outcome::new(simulation.clone(), changes, versions));
        }
        let caches = match &simulation {
            Some(sim) if sim.level > Level::Count => {
                let words = Areas::new(sim).words();
                Some(SharedWords::create(&config.shm_dir, words)?)
            }
            _ => None,
        };
        let clock = match &simulation {
            Some(_) => Some(Clock::create(config)?),
            None => None,
        };
        let sanitizer = match &simulation {
            Some(sim) if sanitizes(sim) => {
                let shape = Shape::new(sim.nodes.len(), &sim.pools).map_err(Error::Setup)?;
                let words = shape.words() as usize;
                Some(SharedWords::create(&config.shm_dir, words)?)
            }
            _ => None,
        };
        let mut nodes = Vec::new();
        let occasion = Occasion::of(config);
        for (id, &isa) in NodeId::first(config.nodes.len()).zip(&config.nodes) {
            let boot_file = dir.join(format!("node{id}.boot"));
            let text = boot_text(config, occasion, id, archive_offset, archive.len() as u64)?;
            write(&boot_file, &text)?;
            let kernel = built.kernels[isa.index()]
                .clone()
                .expect("the kernels of all ISAs in use are built");
            let vectors = (caches.as_ref().map(|_| vectors::of_image(isa, &kernel))).transpose();
            let vectors = vectors.map_err(Error::Setup)?;
            let qemu = match &config.test.qemu[isa.index()] {
                Some(stand_in) => stand_in.clone(),
                None => setup::qemu_program(isa).into(),
            };
            let elf = built
                .program
                .as_ref()
                .and_then(|p| p.elfs[isa.index()].clone());
            let images = [kernel.clone()].into_iter().chain(elf.clone());
            let symbols = Symboliser::new(images.map(|path| keep(&path, dir)));
            let services = built.services.iter().filter_map(|(name, service)| {
                let elf = service.elfs[isa.index()].as_deref()?;
                Some((name.to_string(), Symboliser::new([keep(elf, dir)])))
            });
            let services = services.collect();
            let machine =
                Machine {
                    isa,
                    qemu,
                    cpus: config.cpus,
                    memory: memory_plan(isa, config.nodes.len(), config.mem_local, config.mem_cxl),
                    pool_paths: pools.paths(),
                    kernel: kernel.clone(),
                    boot_file,
                    doorbell: broker.socket().to_string(),
                    gdb: config.gdb.then(free_port).transpose()?,
                    plugin: built.plugin.as_deref().zip(simulation.as_ref()).map(
                        |(plugin, sim)| {
                            let mut options = plugin_options(config, sim, plugin, id, dir);
                            if let Some((caches, vectors)) = caches.as_ref().zip(vectors) {
                                options.push_str(&cache_options(caches, &pools, vectors));
                                if config.test.check_translations {
                                    options.push_str(",check=on");
                                }
                                if config.memory_trace {
                                    let file = trace_file(dir, id.index());
                                    options.push_str(&format!(",trace={}", quoted(&file)));
                                }
                            }
                            if let Some(clock) = &clock {
                                options.push_str(&clock.options(&pools, &broker));
                            }
                            if let Some(state) = &sanitizer {
                                options.push_str(&format!(",sanitizer={}", quoted(&state.path())));
                                if config.sanitize_users {
                                    options.push_str(",users=on");
                                }
                            }
                            options
                        },
                    ),
                    plugins: config.test.plugins_of(id),
                    plugins_log: plugins_file(dir, id.index()),
                    no_maxcpus: config.test.no_maxcpus,
                };
            let command = machine.command().map_err(|e| Error::Setup(e.to_string()))?;
            write(&dir.join(format!("node{id}.cmd")), &format!("{command}\n"))?;
            sink.event(Event::Detail(&format!("node {id}: {command}")));
            if let Some(port) = machine.gdb {
                sink.event(Event::Note(&gdb_hint(
                    id,
                    isa,
                    port,
                    &kernel,
                    elf.as_deref(),
                )));
            }
            let log = dir.join(format!("node{id}.log"));
            nodes.push(Node::new(id, isa, command, log, symbols, services));
        }
        Ok(System {
            questions,
            pools,
            clock,
            broker,
            nodes,
            _caches: caches,
            _sanitizer: sanitizer,
        })
    }
}

/// Takes questions about the run of these programs.
fn questions(
    config: &RunConfig,
    names: &[String],
    dir: &Path,
    pools: &Pools,
    broker: &Broker,
) -> std::io::Result<Server> {
    let named = |(number, name): (u64, &String)| Named {
        number,
        name: name.clone(),
    };
    Server::start(
        dir,
        &format!("{}-ask", broker.socket()),
        Channel::new(pools.cxl().try_clone()?, broker.ringer()),
        (program::FIRST..).zip(names).map(named).collect(),
        config.nodes.clone(),
        pools.present(),
    )
}

/// Whether the plugin looks for what kernels forget to flush.
pub(super) fn sanitizes(sim: &SimConfig) -> bool {
    sim.coherence == Coherence::Incoherent && sim.level > Level::Count
}

/// What the plugin needs beyond level `count`.
fn cache_options(caches: &SharedWords, pools: &Pools, vectors: u64) -> String {
    let pools: Vec<String> = pools.present().iter().map(|p| quoted(p)).collect();
    format!(
        ",caches={},pools={},vectors={vectors:#x}",
        quoted(&caches.path()),
        pools.join(":")
    )
}

/// The plugin and its options.
fn plugin_options(
    config: &RunConfig,
    simulation: &SimConfig,
    plugin: &Path,
    id: NodeId,
    dir: &Path,
) -> String {
    let switch = |on| if on { "on" } else { "off" };
    format!(
        "{},level={},windows={},sites={},node={id},config={},out={}",
        quoted(plugin),
        simulation.level.name(),
        switch(config.windows),
        switch(config.sites),
        quoted(&config_file(dir)),
        quoted(&sim_file(dir, id.index()))
    )
}

/// The programs of the run.
fn versions(config: &RunConfig, built: &Built) -> Versions {
    let used = Isa::ALL.into_iter().filter(|i| config.nodes.contains(i));
    let qemu = |isa: Isa| match &config.test.qemu[isa.index()] {
        // A stand-in is no emulator.
        Some(_) => None,
        None => versions::of_program(Path::new(setup::qemu_program(isa))),
    };
    let kernel = |isa: Isa| Image::of_file(built.kernels[isa.index()].as_deref()?);
    let named = |isa: Isa| isa.name().to_string();
    Versions {
        qemu: used
            .clone()
            .filter_map(|i| Some((named(i), qemu(i)?)))
            .collect(),
        kernel: used.filter_map(|i| Some((named(i), kernel(i)?))).collect(),
        plugin: built.plugin.as_deref().and_then(Image::of_file),
        programs: (!built.archive.is_empty()).then(|| Image::of_bytes("archive", &built.archive)),
        ..Versions::of_sources()
    }
}

fn pretty(simulation: &SimConfig) -> Result<String, Error> {
    serde_json::to_string_pretty(simulation)
        .map_err(|e| Error::io("cannot write the configuration of the simulation", e))
}

fn gdb_hint(id: NodeId, isa: Isa, port: u16, kernel: &Path, elf: Option<&Path>) -> String {
    let arch = match isa {
        Isa::X86_64 => "i386:x86-64",
        Isa::Aarch64 => "aarch64",
    };
    let program = elf.map_or_else(String::new, |e| {
        format!(" -ex 'add-symbol-file {}'", paths::shown(e))
    });
    format!(
        "node {id} ({isa}) waits for a debugger: gdb-multiarch -ex 'set architecture {arch}' \
         -ex 'file {}'{program} -ex 'target remote 127.0.0.1:{port}'",
        paths::shown(kernel)
    )
}

/// What differs between runs of the same settings, and is the same for the nodes of a run.
#[derive(Clone, Copy)]
struct Occasion {
    wall_ns: u64,
    random: u64,
}

impl Occasion {
    /// The wall clock of runs that can be repeated: 2026-01-01 00:00:00 UTC.
    const FIXED_WALL_NS: u64 = 1_767_225_600_000_000_000;

    fn of(config: &RunConfig) -> Occasion {
        match config.random_seed {
            Some(random) => Occasion {
                wall_ns: Occasion::FIXED_WALL_NS,
                random,
            },
            None => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let ns = since.unwrap_or_default().as_nanos();
                Occasion {
                    wall_ns: u64::try_from(ns).unwrap_or(u64::MAX),
                    // The keys of the standard library's hash tables come from the operating system.
                    random: RandomState::new().build_hasher().finish(),
                }
            }
        }
    }
}

fn boot_text(
    config: &RunConfig,
    Occasion { wall_ns, random }: Occasion,
    node: NodeId,
    bundle_offset: u64,
    bundle_len: u64,
) -> Result<String, Error> {
    let mut isas = [Isa::X86_64; MAX_NODES];
    isas[..config.nodes.len()].copy_from_slice(&config.nodes);
    let ktests;
    let (mode, args, ktests) = match &config.work {
        Work::App { args, .. } => (BootMode::App, args.as_str(), ""),
        Work::Ktest(names) => {
            ktests = names.join(",");
            (BootMode::Ktest, "", ktests.as_str())
        }
    };
    let xor = config.test.layout_xor.iter().find(|(n, _)| *n == node);
    let text = BootParams {
        node,
        isas,
        node_count: config.nodes.len(),
        cpus: config.cpus,
        local_size: config.mem_local,
        cxl_size: config.mem_cxl,
        bundle_offset,
        bundle_len,
        mode,
        on_death: config.on_death,
        boot_timeout_ms: BOOT_TIMEOUT_MS,
        coherent: config.coherent,
        clock: match config.sim.level() {
            None => ClockKind::Hardware,
            Some(_) => ClockKind::Fused,
        },
        audit: config.audit,
        rounds_per_second: config.rounds,
        grant: config.grant,
        kernels: config.kernels,
        transport: config.transport,
        ring_place: config.ring_place,
        delay: config.delay()?,
        fault_parts: config.fault_parts,
        block_size: config.block_size,
        app: config.work_name(),
        args,
        env: &config.env.join("\t"),
        wall_ns,
        random,
        ktests,
        test_layout_xor: xor.map_or(0, |(_, x)| *x),
        test_seeded: &config.test.seeded,
    }
    .to_string();
    if text.len() > MAX_TEXT {
        return Err(Error::Usage(format!(
            "the boot parameters are {} bytes long, kernels read at most {MAX_TEXT}: use shorter \
             arguments or fewer tests",
            text.len()
        )));
    }
    // What a kernel would refuse is refused here, with a chance to read why.
    BootParams::parse(&text).map_err(|e| Error::Usage(format!("boot parameters: {e}")))?;
    Ok(text)
}

/// Where the archive goes: at the end of the CXL pool, far from the tables at its start.
fn archive_offset(cxl: u64, len: u64) -> Result<u64, Error> {
    let room = len.next_multiple_of(POOL_GRANULE);
    if room > cxl / 2 {
        return Err(Error::Usage(format!(
            "the programs have {}, which is more than half of the CXL pool of {}: use a \
             larger --mem-cxl",
            size::show(len),
            size::show(cxl)
        )));
    }
    Ok(cxl - room)
}

fn free_port() -> Result<u16, Error> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .map(|a| a.port())
        .map_err(|e| Error::io("no free port for a debugger", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_lie_at_the_end_of_the_pool() {
        assert_eq!(archive_offset(512 << 20, 5000).unwrap(), 510 << 20);
        assert_eq!(archive_offset(512 << 20, 0).unwrap(), 512 << 20);
        let e = archive_offset(32 << 20, 17 << 20).unwrap_err().to_string();
        assert!(e.contains("--mem-cxl"), "{e}");
    }

    #[test]
    fn kernels_understand_the_boot_text() {
        let mut c = RunConfig::default();
        c.test.layout_xor = vec![(NodeId::new(1).unwrap(), 5)];
        c.env = vec!["HOME=a b".into(), "TERM=".into()];
        c.random_seed = Some(9);
        let occasion = Occasion::of(&c);
        let text = boot_text(&c, occasion, NodeId::new(1).unwrap(), 4096, 10).unwrap();
        let p = BootParams::parse(&text).unwrap();
        assert_eq!((p.app, p.test_layout_xor, p.bundle_len), ("hop", 5, 10));
        assert_eq!((p.env, p.random), ("HOME=a b\tTERM=", 9));
        assert_eq!(p.wall_ns, Occasion::FIXED_WALL_NS);
        c.random_seed = None;
        let [a, b] = [0; 2].map(|_| Occasion::of(&c));
        assert!(a.random != b.random && a.wall_ns > Occasion::FIXED_WALL_NS);
        c.work = Work::Ktest(vec!["x".repeat(20_000)]);
        assert!(boot_text(&c, occasion, NodeId::new(0).unwrap(), 0, 0).is_err());
    }
}
