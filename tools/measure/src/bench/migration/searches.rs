//! Searches: from how many edges for each call on it pays to search where the graph lies.

use std::collections::BTreeMap;

use dyad_abi::Isa;
use serde_json::{Value, json};

use super::curves::crossing;
use super::rows::{Key, Row, SEARCH};

/// A graph searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Searched {
    /// Edges for each vertex, as the graph was drawn.
    pub factor: u32,
    /// Vertices found: a call for each.
    pub calls: f64,
    /// Edges that were looked at, each from both ends.
    pub edges: f64,
    /// Simulated time there, with calls, in nanoseconds as all times.
    pub ns: f64,
    /// There without calls.
    pub near_ns: f64,
    /// From here.
    pub stay_ns: f64,
}

impl Searched {
    fn of(op: &str, row: &Row) -> Option<Searched> {
        let more = |what: &str| row.more.get(what).copied();
        Some(Searched {
            factor: op.strip_prefix(SEARCH)?.parse().ok()?,
            calls: more("calls").filter(|n| *n > 0.0)?,
            edges: more("edges").filter(|n| *n > 0.0)?,
            ns: row.sim_ns.filter(|ns| *ns > 0.0)?,
            near_ns: more("near_ns")?,
            stay_ns: more("stay_ns")?,
        })
    }

    /// Edges looked at for each call.
    pub fn each(&self) -> f64 {
        self.edges / self.calls
    }

    /// How many times as fast as from here it is.
    pub fn speedup(&self) -> f64 {
        self.stay_ns / self.ns
    }
}

/// Searches of graphs that differ in how many edges they have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Searches {
    /// By edges for each call.
    pub graphs: Vec<Searched>,
    /// A call there and back.
    pub call_ns: f64,
    /// An edge that is looked at from here, vertices included.
    pub far_ns: f64,
    /// From there.
    pub near_ns: f64,
    /// From how many edges for each call on searching there is as fast, between the graphs.
    pub break_even: Option<f64>,
    /// The same by the model: a call, divided by what an edge saves.
    pub modelled_break_even: f64,
}

impl Searches {
    /// The figures of searches from an ISA, if there were any.
    pub fn of(rows: &BTreeMap<Key, Row>, isa: Isa) -> Option<Searches> {
        let of_isa = rows.iter().filter(|(key, _)| key.isa == isa);
        let mut graphs: Vec<Searched> = of_isa
            .filter_map(|(key, row)| Searched::of(&key.op, row))
            .collect();
        if graphs.is_empty() {
            return None;
        }
        graphs.sort_by(|a, b| a.each().total_cmp(&b.each()));
        let sum = |f: fn(&Searched) -> f64| graphs.iter().map(f).sum::<f64>();
        let (calls, edges) = (sum(|g| g.calls), sum(|g| g.edges));
        let call_ns = sum(|g| g.ns - g.near_ns) / calls;
        let (far_ns, near_ns) = (sum(|g| g.stay_ns) / edges, sum(|g| g.near_ns) / edges);
        let points: Vec<(f64, f64, f64)> = graphs
            .iter()
            .map(|g| (g.each(), g.ns / g.calls, g.stay_ns / g.calls))
            .collect();
        Some(Searches {
            break_even: crossing(&points),
            modelled_break_even: call_ns / (far_ns - near_ns),
            graphs,
            call_ns,
            far_ns,
            near_ns,
        })
    }

    /// For people, a sentence each.
    pub fn text(&self, isa: Isa) -> Vec<String> {
        let graph = |g: &Searched| {
            format!(
                "search from {isa}, {} edges for each vertex: {:.0} vertices found, {:.1} edges looked \
                 at for each; there, with a crossing call for each, {:.3} times as fast as from here",
                g.factor,
                g.calls,
                g.each(),
                g.speedup()
            )
        };
        let even = self
            .break_even
            .map_or("not reached".into(), |n| format!("at {n:.1}"));
        let curve = format!(
            "searches from {isa}: a call takes {:.0} ns, an edge {:.1} ns from here and {:.1} ns from \
             there; break-even {even} edges for each call (by the model {:.1})",
            self.call_ns, self.far_ns, self.near_ns, self.modelled_break_even
        );
        let graphs = self.graphs.iter().map(graph);
        graphs.chain([curve]).collect()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let graph = |g: &Searched| json!({ "factor": g.factor, "edges_each": g.each(), "speedup": g.speedup() });
        json!({
            "graphs": self.graphs.iter().map(graph).collect::<Vec<_>>(),
            "call_ns": self.call_ns,
            "far_ns": self.far_ns,
            "near_ns": self.near_ns,
            "break_even": self.break_even,
            "modelled_break_even": self.modelled_break_even,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Rows of searches in which an edge takes 400 ns from here and 200 from there, and a call 5 us.
    pub(in super::super) fn rows(isa: Isa) -> BTreeMap<Key, Row> {
        let row = |(factor, each): (u32, f64)| {
            let calls = 1000.0 * f64::from(factor);
            let edges = calls * each;
            let more = [
                ("calls", calls),
                ("edges", edges),
                ("near_ns", 200.0 * edges),
                ("stay_ns", 400.0 * edges),
            ];
            let op = format!("{SEARCH}{factor}");
            let row = Row {
                sim_ns: Some(200.0 * edges + 5000.0 * calls),
                more: more.map(|(what, v)| (what.to_string(), v)).into(),
                ..Row::default()
            };
            (Key { op, isa }, row)
        };
        [(4, 12.0), (7, 18.0), (14, 30.0), (19, 38.0)]
            .map(row)
            .into()
    }

    #[test]
    fn break_even_is_where_edges_save_a_call() {
        let isa = Isa::X86_64;
        let searches = Searches::of(&rows(isa), isa).unwrap();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        assert!(near(searches.break_even.unwrap(), 25.0), "{searches:?}");
        assert!(near(searches.modelled_break_even, 25.0), "{searches:?}");
        assert!(near(searches.call_ns, 5000.0), "{searches:?}");
        let faster: Vec<bool> = searches.graphs.iter().map(|g| g.speedup() > 1.0).collect();
        assert_eq!(faster, [false, false, true, true]);
        assert_eq!(Searches::of(&rows(isa), isa.other()), None);
        assert!(searches.text(isa)[4].contains("break-even at 25.0"));
    }

    #[test]
    fn searches_that_are_never_faster_have_no_break_even() {
        let isa = Isa::X86_64;
        let mut rows = rows(isa);
        rows.retain(|key, _| ["bfs_ef_4", "bfs_ef_7"].contains(&key.op.as_str()));
        let searches = Searches::of(&rows, isa).unwrap();
        assert_eq!(searches.break_even, None);
        assert!(searches.text(isa)[2].contains("not reached"));
    }
}
