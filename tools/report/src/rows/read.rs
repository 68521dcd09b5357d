//! Reading results: all of it gives nothing where there is nothing.

use serde_json::Value;

/// Members of a list, which may be missing.
pub fn list<'a>(document: &'a Value, name: &str) -> &'a [Value] {
    document[name].as_array().map_or(&[], Vec::as_slice)
}

/// The first member of a list with these texts as members.
pub fn find<'a>(all: &'a [Value], is: &[(&str, &str)]) -> &'a Value {
    let found = all
        .iter()
        .find(|one| is.iter().all(|(name, text)| one[*name] == **text));
    found.unwrap_or(&Value::Null)
}

/// The texts that a list has as a member, each once, in the order in which they come.
pub fn names<'a>(all: &'a [Value], member: &str) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in all.iter().filter_map(|one| one[member].as_str()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A quotient.
pub fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.zip(b.filter(|b| *b != 0.0)).map(|(a, b)| a / b)
}

/// A straight line through points with the least squares: its start, its slope, and the part of the differences that it explains.
pub fn line(points: &[(f64, f64)]) -> Option<[f64; 3]> {
    if points.len() < 3 {
        return None;
    }
    let n = points.len() as f64;
    let mean = |f: fn(&(f64, f64)) -> f64| points.iter().map(f).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let sum = |f: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| f(p.0 - x, p.1 - y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    let slope = xy / xx;
    let r2 = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
    (xx > 0.0).then_some([y - slope * x, slope, r2])
}

/// Rows whose operation is a family and a number, by that number, of an ISA.
pub fn family<'a>(rows: &'a [Value], family: &str, isa: &str) -> Vec<(f64, &'a Value)> {
    let of = |row: &'a Value| {
        let rest = row["op"].as_str()?.strip_prefix(family)?;
        Some((f64::from(rest.parse::<u32>().ok()?), row))
    };
    let mut all: Vec<(f64, &Value)> = rows
        .iter()
        .filter(|row| row["isa"] == isa)
        .filter_map(of)
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all
}

/// A member of rows of a family as points.
pub fn points(family: &[(f64, &Value)], member: &str) -> Vec<(f64, Option<f64>)> {
    let point = |(x, row): &(f64, &Value)| (*x, row[member].as_f64());
    family.iter().map(point).collect()
}

/// Points that have a value.
pub fn with_values(points: &[(f64, Option<f64>)]) -> Vec<(f64, f64)> {
    points
        .iter()
        .filter_map(|(x, y)| Some((*x, (*y)?)))
        .collect()
}

/// The ISAs, as results name them.
pub const ISAS: [&str; 2] = ["x86_64", "aarch64"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn families_are_in_the_order_of_their_numbers() {
        let rows = json!([
            {"op": "depth_16", "isa": "x86_64", "ns": 160},
            {"op": "depth_4", "isa": "x86_64", "ns": 40},
            {"op": "depth_64", "isa": "x86_64", "ns": 640},
            {"op": "depth_8", "isa": "aarch64", "ns": 1},
            {"op": "depth_x", "isa": "x86_64", "ns": 1},
        ]);
        let rows = rows.as_array().unwrap();
        let points = points(&family(rows, "depth_", "x86_64"), "ns");
        assert_eq!(
            points,
            [(4.0, Some(40.0)), (16.0, Some(160.0)), (64.0, Some(640.0))]
        );
        let [start, slope, r2] = line(&with_values(&points)).unwrap();
        assert!(start.abs() < 1e-9 && (slope - 10.0).abs() < 1e-9 && (r2 - 1.0).abs() < 1e-9);
        assert_eq!(line(&[(1.0, 1.0)]), None);
        assert_eq!(names(rows, "isa"), ["x86_64", "aarch64"]);
        assert_eq!(find(rows, &[("op", "none")]), &Value::Null);
        assert_eq!(ratio(Some(1.0), Some(0.0)), None);
    }
}
