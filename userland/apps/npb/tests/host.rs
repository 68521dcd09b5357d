//! The benchmarks in the emulated system of the host: the same result in every mode.

use std::process::Command;

fn run(args: &str) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_npb"))
        .args(args.split_whitespace())
        .output()
        .expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("its output is text");
    (output.status.code(), text)
}

/// The last line with these words.
fn line(text: &str, words: &str) -> String {
    let found = text.lines().rfind(|l| l.contains(words));
    found
        .unwrap_or_else(|| panic!("no line with {words:?} in:\n{text}"))
        .to_owned()
}

/// Runs a benchmark in several modes, which all verify and have the same checksum. Gives the checksum and the
/// texts.
fn same_in_all(bench: &str, modes: &[&str]) -> (String, Vec<String>) {
    let mut texts = Vec::new();
    for mode in modes {
        let (code, text) = run(&format!("--bench {bench} {mode}"));
        assert_eq!(code, Some(0), "{mode}: {text}");
        let verified = text.contains(" SUCCESSFUL") && !text.contains("UNSUCC");
        assert!(verified, "{mode}: {text}");
        texts.push(text);
    }
    let sum = line(&texts[0], "Checksum");
    for (mode, text) in modes.iter().zip(&texts) {
        assert_eq!(line(text, "Checksum"), sum, "{mode}");
    }
    (sum, texts)
}

const MODES: [&str; 4] = [
    "",
    "--home aarch64",
    "--hop off",
    "--hop=off --home=aarch64",
];

/// How often a task has migrated in each of [`MODES`].
fn hops(texts: &[String]) -> Vec<u64> {
    let number = |text: &String| line(text, "Migrations").rsplit(' ').next()?.parse().ok();
    texts.iter().map(|t| number(t).expect("a number")).collect()
}

#[test]
fn is_is_the_same_in_every_mode() {
    let (_, texts) = same_in_all("is", &MODES);
    assert_eq!(hops(&texts), [22, 22, 0, 0]);
    same_in_all("is", &["--class W", "--class W --hop off --home aarch64"]);
    let modes = [
        "--place home",
        "--place phases",
        "--place alternate",
        "--place offload",
        "--style thread --place alternate",
    ];
    let modes = modes.map(|m| format!("--buckets on {m}"));
    let modes: Vec<&str> = modes.iter().map(String::as_str).collect();
    let (_, texts) = same_in_all("is", &modes[..4]);
    // Home, the ten iterations in turn, and home; away and back for each.
    assert_eq!(hops(&texts), [0, 12, 12, 20]);
    let (code, text) = run(&format!("--bench is {}", modes[4]));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(
        line(&text, "Checksum").trim(),
        line(&texts[0], "Checksum").trim()
    );
}

#[test]
fn cg_is_the_same_in_every_mode() {
    let (_, texts) = same_in_all("cg", &MODES);
    assert_eq!(hops(&texts), [32, 32, 0, 0]);
    for text in texts {
        let last = text.lines().find(|l| l.trim_start().starts_with("15 "));
        let last = last.expect("there are 15 iterations");
        assert!(last.ends_with("8.5971775078648"), "{last}");
    }
}

#[test]
fn mg_is_the_same_in_every_mode() {
    let (_, texts) = same_in_all("mg", &MODES);
    assert_eq!(hops(&texts), [20, 20, 0, 0]);
    for text in texts {
        assert!(line(&text, "L2 norm").contains(" 5.30770700"), "{text}");
    }
}

#[test]
fn ft_is_the_same_in_every_mode() {
    let (_, texts) = same_in_all("ft", &MODES);
    assert_eq!(hops(&texts), [34, 34, 0, 0]);
    for text in texts {
        let sum = "554.268341190257 +493.259724494";
        assert!(line(&text, "T =   6").contains(sum), "{text}");
    }
}

#[test]
fn threads_compute_what_tasks_compute() {
    for bench in ["is", "cg", "mg", "ft"] {
        let (sum, _) = same_in_all(bench, &["--hop off"]);
        for mode in ["--hop off", "--every 3", "--hop off --at 19 --home aarch64"] {
            let (code, text) = run(&format!("--bench {bench} --style thread {mode}"));
            assert_eq!(code, Some(0), "{mode}: {text}");
            assert_eq!(line(&text, "Checksum").trim(), sum.trim(), "{bench} {mode}");
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "takes long without optimisation")]
fn pairs_are_the_same_however_they_are_shared_out() {
    let (sum, _) = same_in_all("ep", &["--hop off", ""]);
    for threads in [1, 2, 3] {
        let (code, text) = run(&format!("--bench ep --style thread --threads {threads}"));
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(line(&text, "Checksum").trim(), sum.trim(), "{threads}");
    }
}

#[test]
fn keys_are_ranked_the_same_however_they_are_shared_out() {
    for more in ["", "--buckets on"] {
        let (_, text) = run(&format!("--bench is {more}"));
        let sum = line(&text, "Checksum");
        for threads in [2, 3, 8] {
            let (code, text) = run(&format!(
                "--bench is {more} --style thread --threads {threads}"
            ));
            assert_eq!(code, Some(0), "{text}");
            assert_eq!(line(&text, "Checksum").trim(), sum.trim(), "{threads}");
        }
    }
}

#[test]
fn wrong_arguments_are_explained() {
    for (args, message) in [
        ("--class B", "--class cannot be \"B\"; possible: S, W, A"),
        (
            "--bench lu",
            "--bench cannot be \"lu\"; possible: is, cg, mg, ft, all, ep",
        ),
        (
            "--home arm",
            "--home cannot be \"arm\"; possible: x86_64, aarch64",
        ),
        ("--hop no", "--hop cannot be \"no\"; possible: on, off"),
        ("--hop", "--hop needs a value; write --hop VALUE"),
        (
            "--hops on",
            "unknown option \"--hops\"; possible: --bench, --style, --class, --hop",
        ),
        (
            "--hop off --place home",
            "with --hop off they run where it starts",
        ),
        ("--threads 2", "--threads is for plain threads of EP and IS"),
        (
            "--bench cg --style thread --threads 2",
            "--threads is for plain threads of EP and IS",
        ),
        ("--bench cg --buckets on", "--buckets is for IS only"),
        (
            "--place there",
            "--place cannot be \"there\"; possible: home, phases, alternate, offload",
        ),
        ("--every 3", "--every is for threads only"),
        (
            "--style thread --every x",
            "possible: a whole number from 0 on",
        ),
    ] {
        let (code, text) = run(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(message), "{text}");
    }
}
