//! Traces of a real run, replayed on both models.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use super::compare::{Both, Difference};
use crate::account::Counters;
use crate::coherent::Storage;
use crate::config::SimConfig;
use crate::merge::Merged;
use crate::trace::{Reader, TraceError};

/// What came of a replay.
#[derive(Debug)]
pub struct Replayed {
    /// Records about which both models agree.
    pub records: u64,
    /// The first about which they do not; nothing was replayed after it.
    pub difference: Option<Box<Difference>>,
    /// What the naive model has counted, by node and CPU. It knows nothing of instructions.
    pub counts: Vec<Vec<Counters>>,
}

/// Replays the traces of all machines of a run in strict order.
///
/// # Errors
///
/// What is wrong with the traces.
pub fn replay_files(
    config: &SimConfig,
    files: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<Replayed, TraceError> {
    let open = |path: &Path| -> Result<_, TraceError> {
        let file = File::open(path).map_err(TraceError::Io)?;
        Reader::new(BufReader::with_capacity(1 << 20, file))
    };
    let readers: Result<Vec<_>, _> = files.into_iter().map(|path| open(path.as_ref())).collect();
    let storage = Storage::new(config);
    let mut both = Both::new(config, &storage);
    let mut difference = None;
    for record in Merged::new(readers?) {
        if let Err(d) = both.step(&record?)? {
            difference = Some(d);
            break;
        }
    }
    let nodes = config.nodes.iter().enumerate();
    let counts = nodes.map(|(node, n)| {
        (0..n.cpus)
            .map(|cpu| both.naive.counts(node, cpu))
            .collect()
    });
    Ok(Replayed {
        records: both.agreed(),
        difference,
        counts: counts.collect(),
    })
}
