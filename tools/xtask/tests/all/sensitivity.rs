//! `sim sensitivity` with machines that are shell scripts, and a program that does nothing.

use crate::common;

use std::process::Command;

use common::{Background, Scratch, add_reports, plugin_report, stub_run, text, tool};
use dyad_abi::Isa;
use dyad_abi::bundle::Scope;
use dyad_abi::user::TEXT_BASE;
use dyad_measure::sensitivity::EXTENSIONS;
use migrate_rt::bundle::{Contents, write};
use rustix::process::Signal;
use serde_json::Value;

/// The command with machines that play this part and leave reports.
fn stubs(d: &Scratch, part: &str, args: &[&str]) -> Command {
    let code = Isa::ALL.map(|isa| Contents {
        scope: Scope::Isa(isa),
        va: TEXT_BASE,
        mem_len: 4,
        bytes: b"code",
        write: false,
        exec: true,
    });
    std::fs::write(d.0.join("npb.bundle"), write("npb", TEXT_BASE, 0, &code)).unwrap();
    let model = stub_run(d, &[part, part], &[]);
    let mut c = tool(d);
    for (name, value) in model.get_envs() {
        c.env(name, value.unwrap());
    }
    let reports = [plugin_report(0, 4_760_000), plugin_report(1, 5_000_000)];
    add_reports(&mut c, d, &reports);
    c.args(["sim", "sensitivity", "--app", "npb.bundle"]);
    c.args(["--mem-local", "32MiB", "--mem-cxl", "32MiB"]);
    c.args(["--csv", "out.csv", "--json", "out.json"]);
    c.args(args);
    c
}

fn outcome(c: &mut Command) -> (Option<i32>, String) {
    let out = c.output().unwrap();
    (out.status.code(), text(&out))
}

fn times<'a>(report: &'a Value, extension: &str) -> &'a Value {
    let rows = report["kernels"][0]["rows"].as_array().unwrap();
    let row = rows.iter().find(|r| r["extension"] == extension);
    &row.unwrap()["time_ps"]
}

#[test]
fn a_table_is_gone_on_with_until_it_is_complete() {
    let d = Scratch::new("sensitivity");
    let all = 2 * (EXTENSIONS.len() + 2);
    let small = ["--class", "S", "--only", "is"];
    // What was measured when the user had enough is kept.
    let mut run = Background::start(stubs(&d, "dear", &small));
    run.wait_for(&format!("run 3 of {all}: is, fused, traps"), 1);
    run.signal(Signal::INT);
    let (status, t) = run.finish();
    assert_eq!(status, Some(130), "{t}");
    for words in ["FAILED: check stub failed", "left, about ", "missing"] {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    let (status, t) = outcome(&mut stubs(&d, "dear", &small));
    assert_eq!(status, Some(2), "{t}");
    assert!(t.contains("add --resume to go on with it"), "{t}");
    // Points that fail are missing, and decide the exit status.
    let resumed = [&small[..], &["--resume"]].concat();
    let (status, t) = outcome(&mut stubs(&d, "dear", &resumed));
    assert_eq!(status, Some(1), "{t}");
    for words in [
        &format!("2 of {all} runs are in out.csv already"),
        "is: base: fused takes as long as multiple\n",
        "is: no measured extension changes this\n",
        "is: not known of traps, all\n",
        "4 failed; --resume makes the 4",
        "4 times are missing in the tables",
    ] {
        assert!(t.contains(words), "{words:?} not in:\n{t}");
    }
    let report = common::report(&d);
    assert_eq!(
        (&report["ok"], &report["missing"]),
        (&false.into(), &4.into())
    );
    assert_eq!(times(&report, "traps")["multiple"], Value::Null);
    assert_eq!(times(&report, "fence")["multiple"], 4_880_000);
    // They are made again, and nothing else is.
    let (status, t) = outcome(&mut stubs(&d, "ok", &resumed));
    assert_eq!(status, Some(0), "{t}");
    assert!(t.contains("run 4 of 4: is, multiple, all"), "{t}");
    assert!(t.contains("is: no extension changes this\n"), "{t}");
    let report = common::report(&d);
    assert_eq!(report["schema"], "dyad.sensitivity/1");
    assert_eq!(
        (&report["ok"], &report["missing"]),
        (&true.into(), &0.into())
    );
    for row in report["kernels"][0]["rows"].as_array().unwrap() {
        assert_eq!(row["time_ps"]["fused"], 4_880_000, "{row}");
        assert_eq!(row["change_percent"]["multiple"], 0.0, "{row}");
    }
    assert_eq!(report["extensions"][0]["set"]["cost.trap"], "82");
}

#[test]
fn wrong_names_are_refused() {
    let d = Scratch::new("sensitivitybad");
    for (args, words) in [
        (["--only", "is,gc"], "did you mean \"cg\"?"),
        (["--class", "B"], "possible: S, W, A"),
        (["--kernels", "fussed"], "did you mean \"fused\"?"),
        (["--timeout", "0"], "whole number from 1"),
        (["--mem-local", "1MiB"], "possible are multiples of"),
    ] {
        let mut c = tool(&d);
        c.args(["sim", "sensitivity", "--json", "out.json"])
            .args(args);
        let (status, t) = outcome(&mut c);
        assert_eq!(status, Some(2), "{args:?}: {t}");
        assert!(t.contains(words), "{args:?}: {words:?} not in:\n{t}");
        let report = common::report(&d);
        assert_eq!(report["schema"], "dyad.sensitivity/1", "{args:?}");
    }
}
