use super::*;

#[test]
fn log_lines_and_records_are_told_from_raw_text() {
    let decode = |s: &str| Line::decode(s.as_bytes());
    assert_eq!(
        decode("\u{1f}1 1500 U hello  world\r"),
        [Line::Log {
            cpu: 1,
            ns: 1500,
            level: Level::User,
            text: "hello  world".into()
        }]
    );
    assert_eq!(
        decode("\u{1e}{\"type\":\"check\",\"name\":\"a\",\"ok\":true,\"detail\":\"d\"}"),
        [Line::Record(Record::Check {
            name: "a".into(),
            ok: true,
            detail: "d".into(),
            program: None,
        })]
    );
    assert_eq!(
        decode("qboot \u{1b}[2J"),
        [Line::Raw("qboot \\u{1b}[2J".into())]
    );
    assert_eq!(decode(""), []);
}

#[test]
fn no_text_can_confuse_a_terminal() {
    let bad = "a\\nok: 9\u{9b}31m\u{85}\u{2028}\u{2029}\u{202e}\u{2067}\u{61c}\u{200f}\u{7f}\u{feff}\u{e0041}";
    let good = "a\\nok: 9\\u{9b}31m\\u{85}\\u{2028}\\u{2029}\\u{202e}\\u{2067}\\u{61c}\\u{200f}\\u{7f}\\u{feff}\\u{e0041}";
    let name = serde_json::from_str::<String>(&format!("\"{bad}\"")).unwrap();
    assert!(name.contains('\n'));
    assert_eq!(escape(&name), good);
    let texts = [
        r#""type":"check","name":"BAD","ok":true,"detail":"BAD""#,
        r#""type":"counter","name":"BAD","value":1"#,
        r#""type":"phase","name":"BAD""#,
        r#""type":"panic","cpu":0,"message":"BAD","location":"BAD""#,
        r#""type":"backtrace","cpu":0,"what":"BAD","pcs":[]"#,
        r#""type":"status","cpu":0,"doing":"BAD""#,
        r#""type":"ktest","name":"BAD","state":"BAD","detail":"BAD""#,
        r#""type":"exit","code":0,"reason":"BAD""#,
    ];
    for text in texts {
        let decoded = |with: &str| {
            let line = format!("\u{1e}{{{}}}", text.replace("BAD", with));
            Line::decode(line.as_bytes())
        };
        // What is good stays as it is.
        assert!(matches!(&decoded("x")[..], [Line::Record(_)]), "{text}");
        assert_eq!(decoded(bad), decoded(&good.replace('\\', "\\\\")), "{text}");
    }
    let log = Line::decode("\u{1f}0 1 U \u{9b}31m \u{202e}\u{2028} \u{e9}".as_bytes());
    assert!(
        matches!(&log[..], [Line::Log { text, .. }] if text == "\\u{9b}31m \\u{202e}\\u{2028} \u{e9}"),
        "{log:?}"
    );
}

#[test]
fn pieces_of_a_stream_are_one_line() {
    let mut joiner = Joiner::default();
    let mut join = |text: &str| -> Vec<Line> {
        let lines = Line::decode(text.as_bytes()).into_iter();
        lines.filter_map(|l| joiner.join(l)).collect()
    };
    let log = |text: &str| Line::Log {
        cpu: 0,
        ns: 5,
        level: Level::User,
        text: text.into(),
    };
    assert_eq!(join("\u{1f}0 5 U \u{1d}7+a b "), []);
    assert_eq!(join("\u{1f}0 5 U \u{1d}513+other"), []);
    assert_eq!(join("\u{1f}0 5 U plain"), [log("plain")]);
    assert_eq!(join("\u{1f}1 6 U \u{1d}7+\u{e4}+."), []);
    assert_eq!(
        join("\u{1f}1 7 U \u{1d}7.  end"),
        [log("a b \u{e4}+.  end")]
    );
    // A stream can begin again.
    assert_eq!(join("\u{1f}0 5 U \u{1d}7."), [log("")]);
    // A head that is damaged is no piece.
    for damaged in [
        "\u{1f}0 5 U \u{1d}x+a",
        "\u{1f}0 5 U \u{1d}7",
        "\u{1f}0 5 U \u{1d}+a",
    ] {
        assert!(matches!(&join(damaged)[..], [Line::Raw(_)]), "{damaged:?}");
    }
    assert_eq!(joiner.finish().collect::<Vec<_>>(), [log("other")]);
}

/// A piece of a stream.
fn piece(stream: u64, is_last: bool, text: &str) -> Line {
    Line::Piece {
        stream,
        is_last,
        line: Box::new(Line::Log {
            cpu: 0,
            ns: 5,
            level: Level::User,
            text: text.into(),
        }),
    }
}

fn text_of(line: Line) -> String {
    match line {
        Line::Log { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

fn held(joiner: &Joiner) -> usize {
    let text = |b: &Begun| match &b.line {
        Line::Log { text, .. } => text.len(),
        _ => 0,
    };
    joiner.begun.values().map(text).sum()
}

#[test]
fn a_line_without_an_end_is_cut_and_says_so() {
    let mut joiner = Joiner::default();
    // Two bytes for each character: the bound is in the middle of one.
    let chunk = "\u{e4}".repeat(MAX_LINE / 2 - 1) + "x";
    let pieces = 3 * MAX_JOINED / chunk.len();
    for _ in 0..pieces {
        assert_eq!(joiner.join(piece(7, false, &chunk)), None);
        assert!(held(&joiner) <= MAX_JOINED);
    }
    let text = text_of(joiner.join(piece(7, true, "end")).unwrap());
    let (kept, mark) = text.split_once(" [... ").unwrap();
    let all = pieces * chunk.len() + "end".len();
    assert!(kept.len() + 1 >= MAX_JOINED && kept.len() <= MAX_JOINED);
    assert_eq!(mark, format!("{} bytes left out]", all - kept.len()));
    // The next line of the stream is whole again.
    assert_eq!(
        text_of(joiner.join(piece(7, true, "next")).unwrap()),
        "next"
    );
    assert_eq!((joiner.held, joiner.begun.len()), (0, 0));
}

#[test]
fn a_line_of_the_longest_that_is_joined_is_whole() {
    let mut joiner = Joiner::default();
    let half = "x".repeat(MAX_JOINED / 2);
    assert_eq!(joiner.join(piece(7, false, &half)), None);
    assert_eq!(
        text_of(joiner.join(piece(7, true, &half)).unwrap()),
        half.repeat(2)
    );
}

#[test]
fn many_lines_without_an_end_are_held_in_bounds() {
    let mut joiner = Joiner::default();
    let chunk = "x".repeat(MAX_LINE);
    let (mut lines, mut printed) = (Vec::new(), 0);
    for stream in 0..2 * MAX_STREAMS as u64 {
        printed += chunk.len();
        lines.extend(joiner.join(piece(stream, false, &chunk)));
        assert!(held(&joiner) == joiner.held && joiner.held <= MAX_HELD);
        assert!(joiner.begun.len() <= MAX_STREAMS);
    }
    lines.extend(joiner.finish());
    assert_eq!(lines.len(), 2 * MAX_STREAMS);
    // Nothing is left out without being counted.
    let counted: usize = lines
        .into_iter()
        .map(text_of)
        .map(|t| match t.split_once(" [... ") {
            Some((kept, mark)) => {
                let n = mark.split(' ').next().unwrap();
                kept.len() + n.parse::<usize>().unwrap()
            }
            None => t.len(),
        })
        .sum();
    assert_eq!(counted, printed);
    assert_eq!(joiner.held, 0);
}

#[test]
fn damaged_lines_are_kept_as_text() {
    for damaged in [
        "\u{1f}x y",
        "\u{1f}0 5 QQ t",
        "\u{1f}0",
        "\u{1e}{\"type\":",
        "\u{1e}{}",
    ] {
        let lines = Line::decode(damaged.as_bytes());
        assert!(
            matches!(&lines[..], [Line::Raw(_)]),
            "{damaged:?}: {lines:?}"
        );
    }
    let cut = Line::decode("half a li\u{1f}0 7 I whole".as_bytes());
    assert!(matches!(&cut[..], [Line::Raw(r), Line::Log { ns: 7, .. }] if r == "half a li"));
}

#[test]
fn lines_come_out_whole_however_the_bytes_arrive() {
    let text = b"one\ntwo two\n\nthree";
    for chunk in 1..text.len() {
        let mut s = Splitter::default();
        let mut lines: Vec<String> = Vec::new();
        let mut keep = |l: &[u8]| lines.push(String::from_utf8_lossy(l).into_owned());
        for part in text.chunks(chunk) {
            s.push(part, &mut keep);
        }
        s.finish(&mut keep);
        assert_eq!(lines, ["one", "two two", "", "three"]);
    }
    let mut s = Splitter::default();
    let mut n = 0;
    s.push(&vec![b'x'; 3 * MAX_LINE], |l| n += l.len());
    s.finish(|l| n += l.len());
    assert_eq!(n, 3 * MAX_LINE);
}
