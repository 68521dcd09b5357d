//! Which conclusions depend on which extension of the simulator: NPB kernels under a base profile that has all extensions off,
//! then with one extension at a time, then with all.
//!
//! Runs are those of a sweep, and their table can be gone on with. A conclusion is an order of two times of the timed region:
//! of fused and multiple kernels, or of two memory models. It changes its sign if the order is another one.

mod extensions;
mod results;

use dyad_abi::service::peer::Kernels;
use dyad_launcher::config::{Named, Number, OrderName, RunConfig, Settings, Sim};
use dyad_launcher::error::Error;
use dyad_sim_model::config::MemoryModel;

use crate::npb::{Bench, Class};
use crate::sweep::Planned;
pub use extensions::{EXTENSIONS, Extension, PROFILE};
pub use results::{OfBench, Results, Row};

/// Name and version of the JSON form.
pub const SCHEMA: &str = "dyad.sensitivity/1";
/// Bound on a run, in seconds, unless told otherwise.
pub const DEFAULT_TIMEOUT: u64 = 3600;

/// What is compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The memory models, over fused kernels.
    Fused,
    /// The memory models, over multiple kernels.
    Multiple,
    /// Fused and multiple kernels.
    Both,
}

impl Compared {
    /// All choices.
    pub const ALL: [Compared; 3] = [Compared::Fused, Compared::Multiple, Compared::Both];

    /// Name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Compared::Fused => "fused",
            Compared::Multiple => "multiple",
            Compared::Both => "both",
        }
    }

    /// The systems that are compared.
    fn variants(self) -> Vec<Variant> {
        let models = |kernels| {
            let variant = |model: MemoryModel| Variant {
                name: model.name(),
                kernels,
                model,
            };
            MemoryModel::ALL.map(variant).to_vec()
        };
        match self {
            Compared::Fused => models(Kernels::Fused),
            Compared::Multiple => models(Kernels::Multiple),
            Compared::Both => Kernels::ALL
                .map(|kernels| Variant {
                    name: kernels.name(),
                    kernels,
                    model: MemoryModel::Shared,
                })
                .to_vec(),
        }
    }
}

names! {
    "choice of kernels": Compared;
}

/// A system that is compared with others.
#[derive(Clone, Copy, Debug)]
struct Variant {
    name: &'static str,
    kernels: Kernels,
    model: MemoryModel,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// NPB kernels.
    pub benches: Vec<Bench>,
    /// Their size.
    pub class: Class,
    /// What is compared.
    pub compared: Compared,
}

/// A run: of a kernel, with these extensions, on one of the compared systems.
pub struct Point {
    bench: Bench,
    row: usize,
    variant: usize,
    /// The run.
    pub planned: Planned,
}

/// The extensions of the rows of a table: none, each one, all.
fn rows() -> Vec<(&'static str, &'static [Extension])> {
    let one = EXTENSIONS.chunks(1).map(|e| (e[0].name, e));
    std::iter::once(("base", &EXTENSIONS[..0]))
        .chain(one)
        .chain([("all", EXTENSIONS)])
        .collect()
}

/// Numbers that a source sets.
fn numbers<'a>(
    source: String,
    set: &'a [(&'static str, &'static str)],
) -> impl Iterator<Item = Number> + use<'a> {
    set.iter().map(move |(key, value)| Number {
        source: source.clone(),
        key: key.to_string(),
        value: value.to_string(),
    })
}

impl Matrix {
    /// All points, kernel by kernel and row by row, so that what has been measured when the user has had enough is of use.
    /// `base` are settings of all runs; `finish` makes a run of settings.
    ///
    /// # Errors
    ///
    /// If settings of a run are wrong.
    pub fn points(
        &self,
        base: &Settings,
        finish: impl Fn(&Settings) -> Result<RunConfig, Error>,
    ) -> Result<Vec<Point>, Error> {
        let mut points = Vec::new();
        for &bench in &self.benches {
            for (row, (name, extensions)) in rows().into_iter().enumerate() {
                for (at, variant) in self.compared.variants().into_iter().enumerate() {
                    let settings = self.settings(base, bench, extensions, variant);
                    let varied = format!("{}, {}, {name}", bench.name(), variant.name);
                    let config = finish(&settings)
                        .map_err(|e| Error::Usage(format!("with {varied}: {e}")))?;
                    points.push(Point {
                        bench,
                        row,
                        variant: at,
                        planned: Planned::new(varied, 1, config),
                    });
                }
            }
        }
        Ok(points)
    }

    fn settings(
        &self,
        base: &Settings,
        bench: Bench,
        extensions: &[Extension],
        variant: Variant,
    ) -> Settings {
        let off = EXTENSIONS.iter().map(|e| e.off.to_vec());
        let off: Vec<_> = off.flatten().collect();
        let has_meaning = |e: &&Extension| e.models.contains(&variant.model);
        let on = extensions.iter().filter(has_meaning);
        let on = on.flat_map(|e| numbers(format!("extension {}", e.name), e.on));
        Settings {
            class: Some(self.class.name().into()),
            args: vec!["--bench".into(), bench.name().into()],
            kernels: Some(Named(variant.kernels)),
            model: Some(Named(variant.model)),
            sim: Some(Named(Sim::Timing)),
            order: Some(Named(OrderName::Strict)),
            profile: Some(PROFILE.into()),
            set: numbers("base".into(), &off).chain(on).collect(),
            ..base.clone()
        }
    }
}

/// The runs of the points. Points without a difference, such as one of an extension that has no meaning in a memory model, are
/// one run.
pub fn runs(points: &[Point]) -> Vec<Planned> {
    let mut all: Vec<Planned> = Vec::new();
    for point in points {
        let digest = point.planned.fingerprint();
        if all.iter().all(|p| p.fingerprint() != digest) {
            let Planned { varied, config, .. } = &point.planned;
            all.push(Planned::new(varied.clone(), 1, config.clone()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(compared: Compared) -> Vec<Point> {
        let matrix = Matrix {
            benches: vec![Bench::Is, Bench::Ft],
            class: Class::S,
            compared,
        };
        matrix
            .points(&Settings::default(), Settings::resolve)
            .unwrap()
    }

    #[test]
    fn every_extension_is_run_alone_and_with_all_others() {
        let both = points(Compared::Both);
        assert_eq!(both.len(), 2 * (EXTENSIONS.len() + 2) * 2);
        assert_eq!(runs(&both).len(), both.len());
        let varied: Vec<&str> = both.iter().map(|p| p.planned.varied.as_str()).collect();
        assert_eq!(
            varied[..3],
            ["is, fused, base", "is, multiple, base", "is, fused, traps"]
        );
        let all = &both[both.len() - 1].planned;
        assert_eq!(all.varied, "ft, multiple, all");
        let sim = all.config.simulation().unwrap().unwrap();
        assert_eq!((sim.nodes[0].cost.trap, sim.filter_entries), (82, 65_536));
        let base = both[0].planned.config.simulation().unwrap().unwrap();
        assert_eq!((base.nodes[0].cost.trap, base.filter_entries), (0, 0));
    }

    /// Only in two of the models there is a device, which the filter is in.
    #[test]
    fn an_extension_without_a_meaning_needs_no_run() {
        let models = points(Compared::Multiple);
        assert_eq!(
            models.len(),
            2 * (EXTENSIONS.len() + 2) * MemoryModel::ALL.len()
        );
        assert_eq!(
            runs(&models).len(),
            models.len() - 2 * (MemoryModel::ALL.len() - 2)
        );
    }
}
