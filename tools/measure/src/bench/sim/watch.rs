//! CPU time of a region: the program says when it begins and ends, and the host's kernel says how
//! long the machine's threads have run until then.
//!
//! Between each of those lines and the region the program does nothing for a while, and what is
//! late at both ends cancels, so the host need not look in the same instant.

use std::collections::BTreeMap;
use std::path::Path;

use dyad_abi::Isa;

use dyad_launcher::console::Line;
use dyad_launcher::launch::{Event, Sink};

/// What the program prints before a region, followed by its place.
const BEGIN: &str = "region begins: ";
/// And after it.
const END: &str = "region has ended: ";

/// Nanoseconds that each thread of a machine has run.
type Threads = BTreeMap<u32, u64>;

/// A region that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Region {
    /// The load.
    pub load: String,
    /// The node.
    pub node: usize,
    /// Its ISA.
    pub isa: Isa,
    /// CPU time of the virtual CPU, in seconds.
    pub seconds: f64,
}

/// A sink that hands everything on and measures regions meanwhile.
pub struct Watch<'a> {
    inner: &'a mut dyn Sink,
    /// Process and ISA of each node.
    machines: Vec<(u32, Isa)>,
    open: Option<(Place, Threads)>,
    regions: Vec<Region>,
}

/// Which load runs where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    load: String,
    node: usize,
}

impl Place {
    /// Reads `LOAD on node N (ISA)`.
    fn parse(text: &str) -> Option<Place> {
        let (load, rest) = text.split_once(" on node ")?;
        let node = rest.split_whitespace().next()?.parse().ok()?;
        Some(Place {
            load: load.into(),
            node,
        })
    }
}

impl<'a> Watch<'a> {
    /// Hands on to `inner`.
    pub fn new(inner: &'a mut dyn Sink) -> Watch<'a> {
        Watch {
            inner,
            machines: Vec::new(),
            open: None,
            regions: Vec::new(),
        }
    }

    /// What was measured.
    pub fn regions(self) -> Vec<Region> {
        self.regions
    }

    fn line(&mut self, text: &str) {
        if let Some(place) = text.strip_prefix(BEGIN).and_then(Place::parse) {
            let threads = self.threads(place.node);
            self.open = threads.map(|t| (place, t));
        } else if let Some(place) = text.strip_prefix(END).and_then(Place::parse)
            && let Some((open, before)) = self.open.take_if(|(open, _)| *open == place)
            && let Some(after) = self.threads(place.node)
            && let Some(&(_, isa)) = self.machines.get(place.node)
        {
            self.regions.push(Region {
                load: open.load,
                node: open.node,
                isa,
                seconds: busiest(&before, &after) as f64 / 1e9,
            });
        }
    }

    fn threads(&self, node: usize) -> Option<Threads> {
        let (pid, _) = self.machines.get(node)?;
        threads(*pid)
    }
}

/// Seconds of a load on the node of an ISA.
pub(super) fn seconds(regions: &[Region], isa: Isa, load: &str) -> Option<f64> {
    let region = regions.iter().find(|r| r.isa == isa && r.load == load);
    region.map(|r| r.seconds)
}

impl Sink for Watch<'_> {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Started { node, isa, pid } => {
                if self.machines.len() <= node {
                    self.machines.resize(node + 1, (0, isa));
                }
                self.machines[node] = (pid, isa);
            }
            Event::Line {
                line: Line::Log { text, .. },
                ..
            } => self.line(text),
            _ => {}
        }
        self.inner.event(event);
    }
}

/// How long the threads of a process have run, which the kernel keeps in nanoseconds.
fn threads(pid: u32) -> Option<Threads> {
    let tasks = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).ok()?;
    let time = |task: std::fs::DirEntry| {
        let id = task.file_name().to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        Some((id, text.split_whitespace().next()?.parse().ok()?))
    };
    Some(tasks.flatten().filter_map(time).collect())
}

/// What the thread that has run most between two looks has run: the virtual CPU, as the others
/// only wait for it.
fn busiest(before: &Threads, after: &Threads) -> u64 {
    let ran = after.iter().map(|(id, now)| {
        let then = before.get(id).copied().unwrap_or(0);
        now.saturating_sub(then)
    });
    ran.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dyad_abi::record::Level;
    use dyad_launcher::launch::Quiet;

    fn say(watch: &mut Watch<'_>, text: &str) {
        let line = Line::Log {
            cpu: 0,
            ns: 0,
            level: Level::User,
            text: text.into(),
        };
        watch.event(Event::Line {
            node: 0,
            isa: Isa::X86_64,
            host: std::time::Duration::ZERO,
            line: &line,
        });
    }

    /// Runs for a while.
    fn work() {
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 60 {
            std::hint::black_box(start);
        }
    }

    #[test]
    fn cpu_time_between_the_lines_is_measured() {
        let mut quiet = Quiet;
        let mut watch = Watch::new(&mut quiet);
        for (node, isa) in [(1, Isa::Aarch64), (0, Isa::X86_64)] {
            let pid = std::process::id();
            watch.event(Event::Started { node, isa, pid });
        }
        work();
        say(&mut watch, "region begins: sort on node 1 (aarch64)");
        work();
        say(&mut watch, "region has ended: sort on node 1 (aarch64)");
        // Nothing that was begun, and an end that is missing.
        say(&mut watch, "region has ended: sort on node 0 (x86_64)");
        say(&mut watch, "region begins: is on node 0 (x86_64)");
        let regions = watch.regions();
        assert_eq!(regions.len(), 1, "{regions:?}");
        let r = &regions[0];
        assert_eq!((r.load.as_str(), r.node, r.isa), ("sort", 1, Isa::Aarch64));
        // Another test may take some of the time, but no thread can run for longer than it lasted.
        assert!((0.005..0.5).contains(&r.seconds), "{r:?}");
        assert_eq!(seconds(&regions, Isa::Aarch64, "sort"), Some(r.seconds));
        assert_eq!(seconds(&regions, Isa::X86_64, "sort"), None);
    }

    #[test]
    fn the_busiest_thread_counts() {
        let before = Threads::from([(1, 100), (2, 50)]);
        let after = Threads::from([(1, 110), (2, 90), (3, 20)]);
        assert_eq!(busiest(&before, &after), 40);
        assert_eq!(Place::parse("sort on"), None);
    }
}
