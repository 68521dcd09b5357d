//! What the stale-read sanitizer has found, for people: source lines, the structure and the field,
//! and what is missing.
//!
//! | module | concern |
//! |---|---|
//! | [`place`] | names of places in fused memory |
//! | [`permitted`] | reads that may be stale |

pub mod permitted;
pub mod place;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use dyad_abi::user::USER_END;
use dyad_shm::permitted::Permitted;
use dyad_sim_model::config::SimConfig;
use dyad_sim_model::incoherent::Kind;
use dyad_sim_model::incoherent::findings::Row;
use dyad_sim_model::report::SanitizerReport;
use serde::{Deserialize, Serialize};

use crate::symbol::Symboliser;
use permitted::List;

/// Most findings that are printed.
const SHOWN: usize = 25;

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// The node.
    pub node: usize,
    /// Its address.
    pub pc: u64,
    /// Function and source line; the address if it has none.
    pub name: String,
    /// All functions it is inlined into, innermost first.
    pub frames: Vec<String>,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Found {
    /// What happened.
    pub kind: Kind,
    /// The structure.
    pub structure: String,
    /// The field.
    pub field: String,
    /// Physical addresses, the first few.
    pub at: Vec<u64>,
    /// Instruction that caused the finding.
    pub by: Site,
    /// Instruction that wrote the word last.
    pub writer: Option<Site>,
    /// Instruction that fetched the copy.
    pub fetched: Option<Site>,
    /// Instruction that stored to the line that was written back.
    pub stored: Option<Site>,
    /// The missing operation.
    pub missing: String,
    /// Old and new value at the first occurrence.
    pub values: (u64, u64),
    /// Number of occurrences.
    pub count: u64,
}

/// Stale reads that the protocol permits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowed {
    /// The reason why they are permitted.
    pub reason: String,
    /// Number of reads.
    pub count: u64,
}

/// What has been found on all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Findings.
    pub findings: Vec<Found>,
    /// Findings for which machines had no room, and reads that they had no room to follow.
    pub dropped: u64,
    /// Stale reads that are no findings, by reason.
    pub permitted: Vec<Allowed>,
}

/// The code of a node, as far as it has names.
struct Image {
    symbols: Symboliser,
    permitted: List,
}

/// Explains what machines report. `images` are those of the nodes: the kernel's, and the program's if there is one.
///
/// # Errors
///
/// If the list of permitted reads of an image cannot be read.
pub fn explain(
    config: &SimConfig,
    machines: &[Option<&SanitizerReport>],
    images: &[[PathBuf; 2]],
) -> Result<Report, String> {
    let images = images.iter().map(|[kernel, program]| {
        let program = program.exists().then_some(program);
        Ok(Image {
            symbols: Symboliser::new([kernel].into_iter().chain(program).cloned()),
            permitted: permitted::of_image(kernel)?,
        })
    });
    let mut explainer = Explainer {
        config,
        images: images.collect::<Result<_, String>>()?,
    };
    let mut report = Report::default();
    let mut allowed: BTreeMap<u32, u64> = BTreeMap::new();
    for machine in machines.iter().flatten() {
        report.dropped += machine.dropped + machine.let_go;
        for row in &machine.findings {
            let permitted = explainer.permits(row);
            match permitted.or_else(|| explainer.permits_by_name(row)) {
                Some(why) => *allowed.entry(why as u32).or_default() += row.count,
                None => report.add(explainer.explain(row)),
            }
        }
    }
    report.findings.sort_by(|a, b| {
        let key = |f: &Found| (f.kind, f.structure.clone(), f.field.clone(), f.by.clone());
        key(a).cmp(&key(b))
    });
    report.permitted = allowed
        .into_iter()
        .filter_map(|(why, count)| {
            let reason = Permitted::from_number(why)?.reason().to_string();
            Some(Allowed { reason, count })
        })
        .collect();
    Ok(report)
}

struct Explainer<'c> {
    config: &'c SimConfig,
    images: Vec<Image>,
}

impl Explainer<'_> {
    /// Why a read may be stale, if it may.
    fn permits(&self, row: &Row) -> Option<Permitted> {
        let image = self.images.get(usize::from(row.node))?;
        let why = *image.permitted.get(&row.pc)?;
        let matters = |&(old, new): &(u64, u64)| why.matters(old, new);
        let late = why.until_round() && (row.later != 0 || row.late.iter().any(matters));
        (row.kind == Kind::StaleRead && !late).then_some(why)
    }

    /// The same of a read of a program, which has no list: the name of the function says it.
    fn permits_by_name(&mut self, row: &Row) -> Option<Permitted> {
        if row.kind != Kind::StaleRead || row.pc >= USER_END {
            return None;
        }
        let image = self.images.get_mut(usize::from(row.node))?;
        let frames = image.symbols.frames(row.pc);
        let is_permitted = frames.iter().any(|f| f.starts_with("load_permitted<"));
        is_permitted.then_some(Permitted::Stamp)
    }

    fn explain(&mut self, row: &Row) -> Found {
        let nodes = self.config.nodes.len();
        let bytes = |pool| {
            let mut pools = self.config.pools.iter().enumerate();
            let found = pools.find(|(i, _)| place::pool_of(*i, nodes) == pool);
            found.map_or(0, |(_, p)| p.size)
        };
        let at = row.at.first().copied().unwrap_or_default();
        let place = place::place(at, row.frame, bytes);
        let by = self.site(usize::from(row.node), row.pc);
        let writer = row.writer_pc.zip(row.writer_node);
        let writer = writer.map(|(pc, node)| self.site(usize::from(node), pc));
        let fetched = row.fetched_pc.map(|pc| self.site(by.node, pc));
        let stored = row.stored_pc.map(|pc| self.site(by.node, pc));
        let missing = missing(row, &by, writer.as_ref(), fetched.as_ref());
        Found {
            kind: row.kind,
            structure: place.structure,
            field: place.field,
            at: row.at.clone(),
            by,
            writer,
            fetched,
            stored,
            missing,
            values: row.values,
            count: row.count,
        }
    }

    fn site(&mut self, node: usize, pc: u64) -> Site {
        let image = self.images.get_mut(node);
        let frames = image.map_or_else(Vec::new, |i| i.symbols.frames(pc));
        Site {
            node,
            pc,
            name: telling(&frames).map_or_else(|| format!("{pc:#x}"), str::to_string),
            frames,
        }
    }
}

/// The innermost function that is not just the way to memory.
fn telling(frames: &[String]) -> Option<&str> {
    const WAYS: [&str; 5] = [
        "library/",
        "kernel/coherence/src/",
        "kernel/object/src/memory.rs",
        "kernel/shm/src/map.rs",
        "arch/",
    ];
    let told = frames.iter().find(|f| {
        let file = f.rsplit_once(" (").map_or("", |(_, file)| file);
        !file.is_empty() && !WAYS.iter().any(|w| file.starts_with(w))
    });
    // Of code that is shared by all who access memory, at least not the library's part.
    let own = || frames.iter().find(|f| !f.contains(" (library/"));
    told.or_else(own).or(frames.first()).map(String::as_str)
}

/// What would have made it right, as far as that can be told.
fn missing(row: &Row, by: &Site, writer: Option<&Site>, fetched: Option<&Site>) -> String {
    let (node, since) = (by.node, fetched.map_or("?", |f| &f.name));
    let writer = writer.map_or_else(
        || "its writer".to_string(),
        |w| format!("node {}, which stored it in {},", w.node, w.name),
    );
    match row.kind {
        Kind::StaleRead if !row.late.is_empty() => format!(
            "an entry in a log, or an invalidation on node {node}: it has completed two rounds since \
             the change and not dropped the line, which it fetched in {since}"
        ),
        Kind::StaleRead => {
            format!(
                "an invalidation on node {node} before the read: the line was fetched in {since}"
            )
        }
        Kind::Unpublished => format!("a write-back: {writer} has not written the line back"),
        Kind::LostUpdate => format!(
            "an invalidation on node {node} before it stored to the line, which it fetched in \
             {since}; or lines of their own for what nodes store to"
        ),
        Kind::CachedRmw => format!(
            "an invalidation on node {node} before the read-modify-write: the line was fetched in \
             {since}, and caches would have modified their copy"
        ),
    }
}

impl Report {
    /// Adds a finding to those that it is the same as for people.
    fn add(&mut self, found: Found) {
        let same = |f: &&mut Found| {
            let names = |f: &Found| (f.by.node, f.by.name.clone(), writer_name(f).to_string());
            f.kind == found.kind
                && (&f.structure, &f.field) == (&found.structure, &found.field)
                && names(f) == names(&found)
        };
        match self.findings.iter_mut().find(same) {
            Some(f) => f.count += found.count,
            None => self.findings.push(found),
        }
    }

    /// Whether nothing was found.
    pub fn ok(&self) -> bool {
        self.findings.is_empty() && self.dropped == 0
    }

    /// What was found, in one line.
    pub fn summary(&self) -> String {
        let Some(first) = self.findings.first() else {
            return match self.dropped {
                0 => String::new(),
                n => format!("{n} reads or findings for which there was no room"),
            };
        };
        let more = match self.findings.len() - 1 {
            0 => String::new(),
            n => format!(", and {n} more"),
        };
        format!(
            "{} of {}.{} in {}{more}",
            first.kind.name(),
            first.structure,
            first.field,
            first.by.name
        )
    }

    /// A table of what was found.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if self.findings.is_empty() {
            let permitted: u64 = self.permitted.iter().map(|p| p.count).sum();
            let _ = writeln!(
                out,
                "  no stale reads but {permitted} that the protocol permits (cargo xtask sim stale-reads)"
            );
            return out;
        }
        for f in self.findings.iter().take(SHOWN) {
            let name = format!("{}.{}", f.structure, f.field);
            let _ = writeln!(out, "  {:<12} {:>8}  {name}", f.kind.name(), f.count);
            let mut line = |what: &str, text: &str| {
                let _ = writeln!(out, "{:>24}  {text}", what);
            };
            line("by", &on_node(&f.by));
            if let Some(writer) = &f.writer {
                line("written by", &on_node(writer));
            }
            if let Some(stored) = &f.stored {
                line("stored to by", &on_node(stored));
            }
            line("missing", &f.missing);
        }
        if self.findings.len() > SHOWN {
            let more = self.findings.len() - SHOWN;
            let _ = writeln!(out, "  {more} more are in the JSON form");
        }
        out
    }
}

fn writer_name(f: &Found) -> &str {
    f.writer.as_ref().map_or("", |w| &w.name)
}

fn on_node(site: &Site) -> String {
    format!("node {}: {}", site.node, site.name)
}

/// The kernels' list of reads that may be stale, as text: by reason, then by place in the source.
///
/// # Errors
///
/// As [`explain`].
pub fn list(kernels: &[(&str, &Path)]) -> Result<String, String> {
    let mut all: BTreeMap<u32, BTreeMap<String, Vec<&str>>> = BTreeMap::new();
    for (isa, path) in kernels {
        let mut symbols = Symboliser::new([path.to_path_buf()]);
        for (pc, why) in permitted::of_image(path)? {
            let frames = symbols.frames(pc);
            let name = telling(&frames).map_or_else(|| format!("{pc:#x}"), str::to_string);
            let isas = all.entry(why as u32).or_default().entry(name).or_default();
            if !isas.contains(isa) {
                isas.push(isa);
            }
        }
    }
    let mut out = String::new();
    for why in Permitted::ALL {
        let until = match why.until_round() {
            true => ", until the node's next round",
            false => "",
        };
        let _ = writeln!(out, "{why:?}{until}: {}", why.reason());
        for (name, isas) in all.get(&(why as u32)).into_iter().flatten() {
            let _ = writeln!(out, "    {name}  [{}]", isas.join(", "));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Setup, System};
    use dyad_sim_model::config::Level;

    /// A row about the barrier of node 1.
    fn row(kind: Kind, pc: u64) -> Row {
        let nodes = std::mem::offset_of!(dyad_shm::Superblock, nodes) as u64;
        Row {
            kind,
            node: 0,
            cpu: 0,
            pc,
            writer_node: Some(1),
            writer_pc: Some(0x7000),
            fetched_pc: Some(0x8000),
            stored_pc: None,
            at: vec![dyad_shm::PoolId::Cxl.base().0 + nodes + 128 + 48],
            frame: 0,
            values: (1, 2),
            late: Vec::new(),
            later: 0,
            count: 3,
        }
    }

    fn explained(rows: Vec<Row>, [dropped, let_go]: [u64; 2]) -> Report {
        let config = Setup::default()
            .resolve(Level::Cache, &System::default())
            .unwrap();
        let machine = SanitizerReport {
            findings: rows,
            dropped,
            let_go,
        };
        // A file with no names and no list.
        let image = std::env::current_exe().unwrap();
        explain(
            &config,
            &[Some(&machine), None],
            &[0, 1].map(|_| [image.clone(), image.join("none")]),
        )
        .unwrap()
    }

    #[test]
    fn findings_say_what_where_and_what_is_missing() {
        let rows = [
            Kind::StaleRead,
            Kind::Unpublished,
            Kind::LostUpdate,
            Kind::CachedRmw,
        ];
        let report = explained(rows.map(|kind| row(kind, 0x10)).into(), [0; 2]);
        assert!(!report.ok());
        for (f, missing) in report.findings.iter().zip([
            "an invalidation on node 0 before the read",
            "a write-back: node 1",
            "an invalidation on node 0 before it stored",
            "an invalidation on node 0 before the read-modify-write",
        ]) {
            assert_eq!(
                (f.structure.as_str(), f.field.as_str()),
                ("superblock", "nodes[1].barrier")
            );
            assert!(f.missing.starts_with(missing), "{}", f.missing);
        }
        let table = report.table();
        assert!(
            table.contains("stale-read          3  superblock.nodes[1].barrier"),
            "{table}"
        );
        assert!(table.contains("by  node 0: 0x10"), "{table}");
        assert!(
            report.summary().ends_with("in 0x10, and 3 more"),
            "{}",
            report.summary()
        );
    }

    #[test]
    fn findings_that_are_the_same_for_people_are_one() {
        let report = explained(vec![row(Kind::StaleRead, 0x10); 2], [0; 2]);
        assert_eq!((report.findings.len(), report.findings[0].count), (1, 6));
        let report = explained(
            vec![row(Kind::StaleRead, 0x10), row(Kind::StaleRead, 0x11)],
            [0; 2],
        );
        assert_eq!(report.findings.len(), 2);
    }

    #[test]
    fn what_had_no_room_fails_too() {
        assert!(explained(Vec::new(), [0; 2]).ok());
        let report = explained(Vec::new(), [4, 3]);
        assert!(!report.ok());
        assert!(report.summary().starts_with("7 reads or findings"));
    }

    #[test]
    fn what_is_permitted_until_a_round_is_not_for_ever() {
        let config = Setup::default()
            .resolve(Level::Cache, &System::default())
            .unwrap();
        let permitted = List::from([(0x10, Permitted::Object), (0x11, Permitted::Placement)]);
        let symbols = Symboliser::default();
        let explainer = Explainer {
            config: &config,
            images: vec![Image { symbols, permitted }],
        };
        let judged = |pc, kind, late: &[(u64, u64)], later| {
            explainer.permits(&Row {
                late: late.to_vec(),
                later,
                ..row(kind, pc)
            })
        };
        let permits = |pc, kind, late: &[(u64, u64)]| judged(pc, kind, late, 0);
        let (object, anywhere) = (Some(Permitted::Object), Some(Permitted::Placement));
        let (space, user) = (0x1_b000_0000, 0x1_8000_0000);
        assert_eq!(permits(0x10, Kind::StaleRead, &[]), object);
        let references = (space | 3, space);
        assert_eq!(permits(0x10, Kind::StaleRead, &[references]), object);
        // What is no object any more passes for one; what was none is looked at again.
        let (gone, come) = ((space, user), (user, space));
        assert_eq!(permits(0x10, Kind::StaleRead, &[gone]), None);
        assert_eq!(permits(0x10, Kind::StaleRead, &[come, references]), object);
        assert_eq!(permits(0x10, Kind::StaleRead, &[come, gone]), None);
        assert_eq!(judged(0x10, Kind::StaleRead, &[come], 1), None);
        assert_eq!(judged(0x11, Kind::StaleRead, &[gone], 1), anywhere);
        assert_eq!(permits(0x12, Kind::StaleRead, &[]), None);
        assert_eq!(permits(0x10, Kind::CachedRmw, &[]), None);
    }
}
