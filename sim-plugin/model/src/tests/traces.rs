//! What is written is read; what is damaged is refused; a replay is the run.

use proptest::prelude::*;

use crate::coherent::{FlushKind, Kind, Storage, System};
use crate::fixture;
use crate::naive::{Both, Naive};
use crate::trace::{Event, MAX_WHO, Reader, Record, TraceError, VERSION, Writer, replay};

fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        Just(Kind::Fetch),
        Just(Kind::Load),
        Just(Kind::Store),
        Just(Kind::Rmw),
    ];
    let flush = prop_oneof![
        Just(FlushKind::Flush),
        Just(FlushKind::Clean),
        Just(FlushKind::Everything),
    ];
    let address = prop_oneof![any::<u64>(), 0..1u64 << 40, Just(u64::MAX)];
    let size = prop_oneof![(0..8u32).prop_map(|n| 1 << n), any::<u64>()];
    prop_oneof![
        8 => (kind, address.clone(), size).prop_map(|(kind, address, size)| Event::Access {
            kind, address, size,
        }),
        1 => (flush, address).prop_map(|(kind, address)| Event::Flush { kind, address }),
        1 => any::<u64>().prop_map(Event::Time),
    ]
}

fn records() -> impl Strategy<Value = Vec<Record>> {
    let record = (0..MAX_WHO, 0..MAX_WHO, event());
    let record = record.prop_map(|(node, cpu, event)| Record { node, cpu, event });
    proptest::collection::vec(record, 0..200)
}

fn write(text: &str, records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), text).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

proptest! {
    #[test]
    fn what_is_written_is_read(text in ".*", records in records()) {
        let bytes = write(&text, &records);
        let reader = Reader::new(&*bytes).unwrap();
        prop_assert_eq!(reader.text(), &text);
        let read = reader.collect::<Result<Vec<_>, _>>().unwrap();
        prop_assert_eq!(read, records);
    }

    /// Wherever a trace is cut off, the whole records before are read, then comes an error.
    #[test]
    fn a_trace_that_is_cut_off_says_so(records in records(), cut in any::<prop::sample::Index>()) {
        let bytes = write("{}", &records);
        let cut = cut.index(bytes.len());
        match Reader::new(&bytes[..cut]) {
            Err(error) => prop_assert!(matches!(error, TraceError::NotATrace)),
            Ok(reader) => {
                let mut read = reader.collect::<Vec<_>>();
                let last = read.pop().expect("at least the error");
                let whole = read.len() as u64;
                let cut = matches!(last, Err(TraceError::CutOff { records }) if records == whole);
                prop_assert!(cut);
                for (read, written) in read.into_iter().zip(&records) {
                    prop_assert_eq!(read.unwrap(), *written);
                }
            }
        }
    }

    /// Arbitrary bytes after the header end in order, whatever they are.
    #[test]
    fn any_bytes_are_read_to_an_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut trace = write("", &[]);
        trace.truncate(16);
        trace.extend(&bytes);
        let read = Reader::new(&*trace).unwrap().collect::<Vec<_>>();
        prop_assert!(read.len() <= bytes.len() + 1);
        prop_assert!(read.iter().rev().skip(1).all(Result::is_ok));
    }
}

#[test]
fn what_is_no_trace_is_refused() {
    let error = |bytes: &[u8]| Reader::new(bytes).unwrap_err().to_string();
    let good = write("", &[]);
    assert_eq!(error(b""), "not a trace");
    assert_eq!(error(b"something else altogether"), "not a trace");
    let mut other = good.clone();
    other[8] = 9;
    let expected = format!("a trace of version 9; version {VERSION} can be read");
    assert_eq!(error(&other), expected);
    let mut long = good.clone();
    long[15] = 1;
    assert_eq!(error(&long), "not a trace");
    let mut utf = write("x", &[]);
    utf[16] = 0xFF;
    assert_eq!(error(&utf), "not a trace");
}

#[test]
fn what_is_damaged_is_refused() {
    let time = |n| Record {
        node: 0,
        cpu: 0,
        event: Event::Time(n),
    };
    let bytes = write("", &[time(1), time(2)]);
    let last = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        let read = Reader::new(&*bytes).unwrap().last();
        read.unwrap().unwrap_err().to_string()
    };
    // A time with a size; a number of records that is wrong; a varint without end.
    let damaged = "the trace is damaged after";
    assert_eq!(last(&|b| b[16] |= 1 << 4), format!("{damaged} 0 records"));
    assert_eq!(
        last(&|b| *b.last_mut().unwrap() = 3),
        format!("{damaged} 2 records")
    );
    assert_eq!(
        last(&|b| {
            b.truncate(17);
            b.extend([0xFF; 10]);
        }),
        format!("{damaged} 0 records")
    );
}

#[test]
fn a_writer_refuses_what_it_cannot_say() {
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    let record = Record {
        node: MAX_WHO,
        cpu: 0,
        event: Event::Time(0),
    };
    assert!(writer.write(&record).is_err());
    assert!(Writer::new(Vec::new(), &" ".repeat(1 << 21)).is_err());
}

#[test]
fn a_usual_record_has_three_bytes() {
    let access = |i: u64| Record {
        node: 0,
        cpu: 0,
        event: Event::Access {
            kind: Kind::Load,
            address: (1 << 36) + i * 64,
            size: 8,
        },
    };
    let records = (0..1000).map(access).collect::<Vec<_>>();
    assert!(write("", &records).len() < 3 * 1000 + 40);
}

#[test]
fn a_replay_is_the_run() {
    let config = fixture::config(2, 1);
    let base = config.pools[0].base;
    // Directly: one access of two lines, a fetch of three.
    let storage = Storage::new(&config);
    let mut system = System::new(&config, &storage);
    let line = base / 64;
    let direct = system.access(0, 0, Kind::Store, line)
        + system.second_line(0, 0, Kind::Store, line + 1)
        + (4..7)
            .map(|i| system.access(1, 0, Kind::Fetch, line + i))
            .sum::<u64>()
        + system.flush(0, 0, FlushKind::Flush, line);

    let record = |node, event| Record {
        node,
        cpu: 0,
        event,
    };
    let access = |kind, address, size| Event::Access {
        kind,
        address,
        size,
    };
    let records = [
        record(0, access(Kind::Store, base + 60, 8)),
        record(0, Event::Time(17)),
        record(1, access(Kind::Fetch, base + 4 * 64, 129)),
        record(
            0,
            Event::Flush {
                kind: FlushKind::Flush,
                address: base + 63,
            },
        ),
    ];
    let again = Storage::new(&config);
    let mut both = Both::new(&config, &again);
    let bytes = write("", &records);
    let mut cycles = 0;
    for record in Reader::new(&*bytes).unwrap() {
        cycles += both.step(&record.unwrap()).unwrap().unwrap();
    }
    assert_eq!(cycles, direct);
    assert_eq!(both.cycles(0, 0) + both.cycles(1, 0), direct);
    for node in 0..2 {
        assert_eq!(both.fast.counts(node, 0), system.counts(node, 0));
    }
    let counts = system.counts(0, 0);
    assert_eq!((counts.stores, counts.split, counts.flushes), (2, 1, 1));
    assert_eq!((counts.report().accesses, counts.writebacks), (1, 1));
    assert_eq!(both.agreed(), 4);

    let stranger = record(2, Event::Time(0));
    let error = replay(&stranger, &mut Naive::new(&config)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the trace is of a system with a CPU 0 of a node 2"
    );
}

/// A difference is reported with what differs.
#[test]
fn a_difference_names_the_counters() {
    let config = fixture::config(1, 1);
    let storage = Storage::new(&config);
    let mut both = Both::new(&config, &storage);
    both.fast.core(0, 0).counts.forwarded += 1;
    let record = Record {
        node: 0,
        cpu: 0,
        event: Event::Access {
            kind: Kind::Load,
            address: 0,
            size: 1,
        },
    };
    let difference = both.step(&record).unwrap().unwrap_err().to_string();
    assert!(
        difference.starts_with("after 0 records, ")
            && difference.ends_with("latency 300, naive 300; forwarded 1, naive 0"),
        "{difference}"
    );
}
