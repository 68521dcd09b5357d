//! Requests in a second by part of puts, and by rounds of quiescence, as a picture (SVG).

use std::fmt::Write as _;

use super::{Caches, Kv, STORES};

const PANEL: f64 = 260.0;
const LEFT: f64 = 70.0;
const TOP: f64 = 40.0;
const STEP: f64 = PANEL + 90.0;

const COLOURS: [&str; 4] = ["#1f4e79", "#c7522a", "#5a8f3d", "#7a4a8c"];

/// A line of a panel: a value at each place.
struct Series {
    name: String,
    points: Vec<f64>,
}

impl Kv {
    /// The panels: title, names of the places along the axis, lines with a point at each place.
    fn panels(&self) -> Vec<(String, Vec<String>, Vec<Series>)> {
        let mut all = Vec::new();
        for caches in self.caches() {
            let places = self.sweep(caches, STORES[0]);
            if places.is_empty() {
                continue;
            }
            let lines = STORES.map(|store| Series {
                name: store.into(),
                points: self.sweep(caches, store).iter().map(|p| p.1).collect(),
            });
            let places = places.iter().map(|p| format!("{} %", p.0));
            let title = format!("{}: requests/s by part of puts", caches.name());
            all.push((title, places.collect(), lines.into()));
        }
        for caches in Caches::ALL {
            let of = || self.rates.iter().filter(move |(k, _)| k.0 == caches);
            let mut sets: Vec<u64> = of().map(|(k, _)| k.1).collect();
            sets.dedup();
            let Some(&first) = sets.first() else { continue };
            let places = of().filter(|(k, _)| k.1 == first);
            let places = places.map(|(k, _)| k.2.to_string()).collect();
            let lines = sets.into_iter().map(|items| Series {
                name: format!("lib, {items} items"),
                points: of()
                    .filter(|(k, _)| k.1 == items)
                    .map(|(_, row)| row.per_second as f64)
                    .collect(),
            });
            let title = format!("{}: requests/s by rounds/s", caches.name());
            all.push((title, places, lines.collect()));
        }
        all
    }

    /// A panel for each kind of memory and sweep. Axes begin at 0; places along an axis are equally far from each other.
    pub fn picture(&self) -> String {
        let panels = self.panels();
        let width = LEFT + panels.len().max(1) as f64 * STEP;
        let height = TOP + PANEL + 100.0;
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             font-family=\"sans-serif\" font-size=\"11\">\n\
             <title>Requests in a second of stores</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        for (n, (title, places, lines)) in panels.iter().enumerate() {
            let left = LEFT + n as f64 * STEP;
            let base = TOP + PANEL;
            let all = lines.iter().flat_map(|line| &line.points);
            let high = all.fold(1.0, |most: f64, &p| most.max(p));
            let across = PANEL / places.len().saturating_sub(1).max(1) as f64;
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "<text x=\"{left}\" y=\"20\">{title}</text>\
                 <path d=\"M{left} {TOP}V{base}h{PANEL}\" fill=\"none\" stroke=\"#333\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{high:.0}</text>",
                left - 4.0,
                TOP + 10.0
            );
            for (place, name) in places.iter().enumerate() {
                let x = left + place as f64 * across;
                let _ = writeln!(
                    out,
                    "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
                    base + 16.0
                );
            }
            for (row, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
                let points = line.points.iter().enumerate().map(|(place, p)| {
                    let (x, y) = (left + place as f64 * across, base - p / high * PANEL);
                    format!("{x:.1},{y:.1}")
                });
                let points: Vec<String> = points.collect();
                let _ = writeln!(
                    out,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
                     <text x=\"{left}\" y=\"{}\" fill=\"{colour}\">{}</text>",
                    points.join(" "),
                    base + 34.0 + 14.0 * row as f64,
                    line.name
                );
            }
        }
        out.push_str("</svg>\n");
        out
    }
}
