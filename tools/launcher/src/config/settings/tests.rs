use dyad_abi::Isa;

use super::*;

fn file(text: &str) -> Result<RunConfig, String> {
    File::from_toml(text)?.settings.checked()
}

#[test]
fn blocks_are_powers_of_two_that_a_pool_has() {
    assert_eq!(file("").unwrap().block_size, 32 << 20);
    let c = file("block-size = \"256MiB\"\nmem-cxl = \"1GiB\"").unwrap();
    assert_eq!(c.block_size, 256 << 20);
    for (text, part) in [
        (
            "block-size = \"48MiB\"",
            "powers of two from 32 MiB to 4 GiB",
        ),
        (
            "block-size = \"16MiB\"",
            "powers of two from 32 MiB to 4 GiB",
        ),
        (
            "block-size = \"8GiB\"",
            "powers of two from 32 MiB to 4 GiB",
        ),
        (
            "block-size = \"1GiB\"",
            "no pool is that large: mem-local is 256 MiB",
        ),
    ] {
        let why = file(text).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }
}

#[test]
fn a_file_says_the_same_as_the_command_line() {
    let c = file(
        "nodes = [\"aarch64\", \"x86_64\", \"aarch64\"]\ncpus = 2\nmem-local = \"64MiB\"\n\
         mem-cxl = 268435456\napp = \"npb\"\nclass = \"W\"\non-death = \"survive\"\ntimeout = 10",
    )
    .unwrap();
    assert_eq!(c.nodes, [Isa::Aarch64, Isa::X86_64, Isa::Aarch64]);
    assert_eq!((c.cpus, c.mem_local, c.mem_cxl), (2, 64 << 20, 256 << 20));
    assert_eq!(c.on_death, OnDeath::Survive);
    assert_eq!(c.timeout, Some(Duration::from_secs(10)));
    let args = "--class W".to_string();
    let app = "npb".to_string();
    assert_eq!(c.work, Work::App { app, args });
}

#[test]
fn the_command_line_wins() {
    let text = "cpus = 2\naudit = true\nverbose = true\njson = \"a.json\"\napp = \"a\"\nargs = \"x y\"\n\
                seed = 18446744073709551615\n[set]\nghz = 1\nl2.ways = 4";
    let text = text.replace("18446744073709551615", "\"18446744073709551615\"");
    let file = File::from_toml(&text).unwrap();
    let line = Settings {
        cpus: Some(Whole(4)),
        set: vec!["ghz=2".parse().unwrap()],
        ..Settings::default()
    };
    let all = line.or(file.settings);
    assert_eq!(
        (all.cpus, all.audit, all.app.as_deref()),
        (Some(Whole(4)), true, Some("a"))
    );
    assert_eq!(
        (all.seed, &all.args[..]),
        (Some(Whole(u64::MAX)), &["x y".to_string()][..])
    );
    let numbers: Vec<_> = layers(&all.set)
        .into_iter()
        .map(|l| (l.source, l.entries.len()))
        .collect();
    assert_eq!(numbers, [("set".into(), 2), ("--set".into(), 1)]);
    let quiet = Output {
        quiet: true,
        ..Output::default()
    };
    let output = quiet.or(file.output);
    assert_eq!((output.quiet, output.verbose), (true, false));
    assert_eq!(file.json.json.as_deref(), Some("a.json"));
}

#[test]
fn wrong_settings_are_named_with_what_is_possible() {
    for (text, message) in [
        (
            "node = \"x86_64,aarch64\"",
            "unknown key \"node\": did you mean \"nodes\"?",
        ),
        ("on_death = \"end\"", "did you mean \"on-death\"?"),
        ("on-death = \"survives\"", "did you mean \"survive\"?"),
        ("nodes = \"x86-64,aarch64\"", "did you mean \"x86_64\"?"),
        ("nodes = \"x86_64\"", "1 node given; a system has 2 to 8"),
        ("cpus = 9", "\"9\" is not a whole number from 1 to 8"),
        (
            "cpus = true",
            "expected a string, a number or a list of strings",
        ),
        ("gdb = 1", "invalid type: integer `1`, expected a boolean"),
        (
            "mem-local = \"33MiB\"",
            "a pool of 33 MiB; possible are multiples of 2 MiB",
        ),
        ("mem-cxl = \"lots\"", "\"lots\" is not a size"),
        ("timeout = 0", "\"0\" is not a whole number"),
        ("args = \"a\\nb\"", "one line"),
        ("quiet = true\nverbose = true", "exclude each other"),
        ("cpus = ", "not valid TOML"),
    ] {
        let e = file(text).unwrap_err();
        assert!(e.contains(message), "{text}: {e}");
    }
}

/// What several kernels cannot do is refused with what is possible instead.
#[test]
fn several_kernels_refuse_what_they_do_not_have() {
    let said = |more: &str| {
        let kernels = if more.contains("--kernels") {
            ""
        } else {
            "--kernels multiple"
        };
        let line = format!("run {kernels} {more}");
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            file: File,
        }
        let line = <Line as clap::Parser>::try_parse_from(line.split_whitespace()).unwrap();
        line.file.settings.checked()
    };
    let eight = "--nodes x86_64,x86_64,aarch64,aarch64,x86_64,x86_64,aarch64,aarch64";
    for nodes in [
        "",
        "--nodes aarch64,x86_64",
        "--nodes x86_64,x86_64",
        "--nodes x86_64,aarch64,x86_64",
        eight,
    ] {
        assert_eq!(said(nodes).unwrap().kernels, Kernels::Multiple);
    }
    for transport in Transport::ALL {
        let said = said(&format!("--transport {}", transport.name()));
        assert_eq!(said.unwrap().transport, transport);
    }
    for place in RingPlace::ALL {
        let said = said(&format!("--ring-place {}", place.name()));
        assert_eq!(said.unwrap().ring_place, place);
    }
    for alone in [
        "--kernels fused --transport tcp",
        "--fault-parts --kernels fused",
        "--ring-place cxl --kernels fused",
    ] {
        let e = said(alone).unwrap_err();
        assert!(e.contains("use --kernels multiple"), "{alone}: {e}");
    }
    for (more, message) in [
        ("--cpus 2", "one CPU on each node"),
        ("--grant all", "leave --grant out"),
        ("--on-death restart", "give survive"),
        ("--coherence incoherent", "leave --coherence out"),
    ] {
        let e = said(more).unwrap_err();
        assert!(e.contains(message), "{more}: {e}");
    }
}

/// Every setting is an option and a key: what is merged is what was said.
#[test]
fn all_settings_survive_being_merged() {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        file: File,
    }
    let line = "run --nodes aarch64,x86_64 --cpus 2 --mem-local 64MiB --mem-cxl 1GiB --block-size 64MiB \
                --kernels multiple --transport poll --ring-place cxl --fault-parts --on-death survive --coherence incoherent --timeout 7 --shm-dir /dev/shm --app npb --class W \
                --grant all --env A=1 --env B= --stdin in.txt --random-seed 5 --rounds 9 --audit --slowpath --sim timing --model separated --profile artifact \
                --order strict --seed 3 --windows --sites --sanitize user --memory-trace -- --a b";
    let line = <Line as clap::Parser>::try_parse_from(line.split_whitespace()).unwrap();
    let all = line.file.settings;
    let command = Settings::augment_args(clap::Command::new("all"));
    assert_eq!(
        all.said().len() + 1,
        command.get_arguments().count(),
        "but for --set"
    );
    assert_eq!(all.clone().or(Settings::default()), all);
    assert_eq!(Settings::default().or(all.clone()), all);
    let other = all.clone().with("cpus", "3").unwrap();
    assert_eq!(other.cpus, Some(Whole(3)));
    assert_eq!(other.with("cpus", "2").unwrap(), all);
    let e = all.with("model", "sharde").unwrap_err();
    assert!(e.contains("did you mean \"shared\"?"), "{e}");
}

#[test]
fn keys_are_the_names_of_options() {
    let keys = File::keys();
    for key in [
        "nodes",
        "mem-local",
        "set",
        "args",
        "json",
        "csv",
        "verbose",
        "memory-trace",
    ] {
        assert!(keys.iter().any(|k| k == key), "{key}");
    }
    let words = Settings::words();
    assert!(words.contains(&"on-death".into()) && words.contains(&"args".into()));
    assert!(!words.contains(&"audit".into()) && !words.contains(&"set".into()));
}
