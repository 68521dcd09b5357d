//! Tests of verdicts on whole rows.

use super::*;
use crate::measurements::COMPARE;
use crate::records::tests::record;

/// The result of a comparison of IS, in which fused kernels take a third of the time by messages.
pub fn compare(fused_ps: u64) -> Value {
    let point = |system: &str, time: u64, messages: u64, pages: u64| {
        json!({
            "bench": "is", "model": "shared", "system": system, "time_ps": time, "messages": messages, "pages_replicated": pages,
        })
    };
    json!({
        "schema": "dyad.bench/1", "suite": "compare", "ok": true, "failure": null,
        "points": [
            point("vanilla", 1_000_000, 0, 0),
            point("tcp", 9_000_000, 207_124, 16_918),
            point("ring", 4_500_000, 207_124, 16_918),
            point("fused", fused_ps, 22, 7),
        ],
        "conclusions": ["is, shared: fused takes 0.33 of ring: 207,124 page messages against 5 remote lines"],
    })
}

pub fn records(document: Value) -> Records {
    let command = measurements::named(COMPARE)
        .unwrap()
        .command(Size::Quick)
        .unwrap();
    [(COMPARE, Ok(record(COMPARE, &command, document)))].into()
}

pub fn report(records: &Records, bounds: &Bounds, mixed: bool) -> Report {
    let rows: Vec<Row> = crate::rows::all().collect();
    let fingerprint = Fingerprint::default();
    let basis = Basis {
        size: Size::Quick,
        bounds,
        fingerprint: &fingerprint,
        mixed,
    };
    Report::of(&rows, basis, records, vec![("CPUs", "2".into())])
}

pub fn entry<'a>(report: &'a Report, id: &str) -> &'a Entry {
    report.entries.iter().find(|e| e.row.id == id).unwrap()
}

#[test]
fn verdicts_follow_from_records() {
    let bounds = Bounds::of_sources().unwrap();
    let good = report(&records(compare(1_500_000)), &bounds, false);
    assert_eq!(entry(&good, "ST-F9").verdict.to_string(), "reproduced");
    assert_eq!(entry(&good, "ST-T3").verdict.to_string(), "reproduced");
    assert_eq!(entry(&good, "ST-F14").verdict.kind, Kind::NotBuilt);
    assert_eq!(entry(&good, "BA-F3").verdict.kind, Kind::Incomplete);
    assert!(!good.is_complete());
    let slow = report(&records(compare(5_000_000)), &bounds, false);
    let verdict = entry(&slow, "ST-F9").verdict.to_string();
    assert!(
        verdict.starts_with("differs, because: is, shared: ring / fused is 0.900"),
        "{verdict}"
    );
    assert!(verdict.contains("counts: is, shared"), "{verdict}");
}

#[test]
fn a_missing_point_is_a_gap_and_makes_the_row_incomplete() {
    let bounds = Bounds::of_sources().unwrap();
    let mut document = compare(1_500_000);
    document["points"][3]["time_ps"] = Value::Null;
    let report = report(&records(document), &bounds, false);
    let verdict = &entry(&report, "ST-F9").verdict;
    assert_eq!(verdict.kind, Kind::Incomplete);
    assert!(
        verdict
            .to_string()
            .contains("missing: is, shared: ring / fused"),
        "{verdict}"
    );
    // Counts are there.
    assert_eq!(entry(&report, "ST-T3").verdict.kind, Kind::Reproduced);
    let csv = report.csv();
    assert!(
        csv.contains("ST-F9,Stramash,incomplete,\"is, shared: ring / fused\",,,\n"),
        "{csv}"
    );
}

#[test]
fn a_record_that_cannot_be_used_makes_its_rows_incomplete() {
    let bounds = Bounds::of_sources().unwrap();
    let why = "the record was changed after it was written".to_string();
    let report = report(&[(COMPARE, Err(why))].into(), &bounds, false);
    let verdict = entry(&report, "ST-F9").verdict.to_string();
    assert_eq!(
        verdict,
        "INCOMPLETE: compare: the record was changed after it was written"
    );
    assert_eq!(report.json()["ok"], false);
}

#[test]
fn records_of_another_version_are_refused_unless_mixed_and_then_shown() {
    let bounds = Bounds::of_sources().unwrap();
    let mut records = records(compare(1_500_000));
    let record = records.get_mut(COMPARE).unwrap().as_mut().unwrap();
    record.fingerprint.commit = "c0ffee".into();
    let refused = report(&records, &bounds, false);
    let verdict = entry(&refused, "ST-F9").verdict.to_string();
    assert!(
        verdict.starts_with("INCOMPLETE: compare: the record is of another version: commit c0ffee"),
        "{verdict}"
    );
    let shown = report(&records, &bounds, true);
    let entry = entry(&shown, "ST-F9");
    assert_eq!(entry.verdict.kind, Kind::Reproduced);
    assert_eq!(entry.marks(), ["mixed: compare: commit c0ffee instead of "]);
}

#[test]
fn a_bound_that_changed_after_the_run_is_marked() {
    let bounds = Bounds::of_sources().unwrap();
    let mut records = records(compare(1_500_000));
    let record = records.get_mut(COMPARE).unwrap().as_mut().unwrap();
    for id in ["ST-F9", "ST-T3"] {
        record.bounds.insert(id.into(), bounds.digest(id));
    }
    let same = report(&records, &bounds, false);
    assert!(entry(&same, "ST-F9").marks().is_empty());
    let mut changed = bounds;
    let bound = changed.all.iter_mut().find(|b| b.row == "ST-F9").unwrap();
    bound.max = Some(99.0);
    let marked = report(&records, &changed, false);
    assert_eq!(
        entry(&marked, "ST-F9").marks(),
        ["measured against another bound"]
    );
    assert!(entry(&marked, "ST-T3").marks().is_empty());
}

/// Each bound of the file fails for a value outside of it and holds for one inside, and the verdict follows.
#[test]
fn every_bound_can_fail() {
    let bounds = Bounds::of_sources().unwrap();
    for bound in &bounds.all {
        let size = bound.sizes.first().copied().unwrap_or(Size::W);
        let only = Bounds {
            all: vec![bound.clone()],
        };
        let verdict = |value: Option<f64>| {
            let mut reading = Reading::default();
            reading.add(bound.name.replace('*', "x"), value, "");
            let judged = verdict::judge(&only, &bound.row, size, &reading);
            verdict::verdict(&judged, size, &reading, None, None).kind
        };
        let inside = bound.min.or(bound.max);
        assert_eq!(verdict(inside), Kind::Reproduced, "{bound:?}");
        assert_eq!(verdict(None), Kind::Incomplete, "{bound:?}");
        for outside in [bound.min.map(|v| v - 1e-3), bound.max.map(|v| v + 1e-3)] {
            if outside.is_some() {
                assert_eq!(verdict(outside), Kind::Differs, "{bound:?}");
            }
        }
    }
}
