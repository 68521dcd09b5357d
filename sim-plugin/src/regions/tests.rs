// SPDX-License-Identifier: GPL-2.0-or-later
use super::*;

impl Measured for u64 {
    const WORDS: usize = 1;
    fn time_ps(&self) -> u64 {
        *self
    }
    fn put(&self, _: bool, put: &mut impl FnMut(u64)) {
        put(*self);
    }
    fn take(take: &mut impl FnMut() -> u64) -> u64 {
        take()
    }
    fn asleep_until(self, time_ps: u64, _: bool) -> u64 {
        self.max(time_ps)
    }
}

fn words(cpus: usize) -> Vec<AtomicU64> {
    let words = cpus * region_words(cpus, u64::WORDS);
    std::iter::repeat_with(AtomicU64::default)
        .take(words)
        .collect()
}

fn mark(regions: &mut Regions<'_, u64>, op: MarkerOp, id: u16, now: u64) {
    let id = WindowId(id);
    regions.marker(Marker { op, id }, now);
}

#[test]
fn each_pass_has_a_time_as_long_as_there_is_room() {
    let words = words(1);
    let mut regions = Regions::<u64>::new(&words, 1, 0, 1);
    let passes = KEPT as u64 + 2;
    for n in 0..passes {
        mark(&mut regions, MarkerOp::Begin, 1, 1000 * n);
        mark(&mut regions, MarkerOp::End, 1, 1000 * n + n % 7);
    }
    let region = &regions.closed()[&WindowId(1)];
    assert_eq!(region.n, passes);
    let times = (0..KEPT as u64).map(|n| n % 7);
    assert!(region.times_ps.iter().copied().eq(times));
}

#[test]
fn passes_add_up_and_only_matching_ends_count() {
    let words = words(1);
    let mut regions = Regions::<u64>::new(&words, 1, 0, 1);
    for (op, id, now) in [
        (MarkerOp::End, 1, 5),
        (MarkerOp::Begin, 1, 10),
        (MarkerOp::End, 2, 15),
        (MarkerOp::End, 1, 30),
        (MarkerOp::Begin, 1, 100),
        (MarkerOp::End, 1, 103),
        (MarkerOp::Begin, 2, 200),
        (MarkerOp::Begin, 3, 300),
        (MarkerOp::End, 3, 301),
        (MarkerOp::Begin, 4, 400),
        (MarkerOp::Abandon, 0, 401),
        (MarkerOp::End, 4, 402),
    ] {
        mark(&mut regions, op, id, now);
    }
    let closed = regions.closed().iter();
    let all: Vec<_> = closed.map(|(id, r)| (id.0, r.n, r.sum)).collect();
    assert_eq!(all, [(1, 2, 23), (3, 1, 1)]);
    mark(&mut regions, MarkerOp::Forget, 1, 500);
    assert!(!regions.closed().contains_key(&WindowId(1)));
}

#[test]
fn a_region_is_closed_where_its_thread_has_come_to() {
    let words = words(3);
    let [mut a, mut b, mut c] = [0, 1, 2].map(|me| Regions::<u64>::new(&words, 3, me, 7));
    b.publish(0, Doing::Works, |_| 90);
    c.publish(0, Doing::Sleeps, |_| 100);
    mark(&mut a, MarkerOp::Begin, 1, 110);
    // CPU 2 sleeps on, and CPU 0 does something else.
    a.publish(0, Doing::Works, |_| 160);
    mark(&mut b, MarkerOp::End, 2, 170);
    assert!(b.closed().is_empty(), "another region is open");
    mark(&mut b, MarkerOp::End, 1, 200);
    let region = &b.closed()[&WindowId(1)];
    assert_eq!((region.n, region.moved, region.sum), (0, 1, 0));
    assert_eq!(region.times_ps, [90]);
    assert_eq!(region.all, [50, 110, 90], "each CPU by itself");
    // It is closed now, for all.
    mark(&mut a, MarkerOp::End, 1, 210);
    mark(&mut b, MarkerOp::End, 1, 210);
    assert!(a.closed().is_empty());
    assert_eq!(b.closed()[&WindowId(1)].moved, 1);
}

#[test]
fn the_own_region_is_closed_first_and_counts_what_others_did() {
    let words = words(2);
    let [mut a, mut b] = [0, 1].map(|me| Regions::<u64>::new(&words, 2, me, 7));
    mark(&mut a, MarkerOp::Begin, 1, 10);
    mark(&mut b, MarkerOp::Begin, 1, 20);
    a.publish(0, Doing::Works, |_| 25);
    mark(&mut b, MarkerOp::End, 1, 50);
    let region = &b.closed()[&WindowId(1)];
    assert_eq!((region.n, region.moved, region.sum), (1, 0, 30));
    // What CPU 0 had published when it was opened is nothing.
    assert_eq!(region.all, [0, 30]);
    mark(&mut a, MarkerOp::End, 1, 60);
    assert_eq!(a.closed()[&WindowId(1)].sum, 50);
}

#[test]
fn a_machine_that_comes_back_has_nothing_open_and_is_left_out() {
    let words = words(2);
    let [mut a, mut b] = [0, 1].map(|me| Regions::<u64>::new(&words, 2, me, 7));
    b.publish(0, Doing::Works, |_| 1000);
    mark(&mut a, MarkerOp::Begin, 1, 1010);
    let mut b = Regions::<u64>::new(&words, 2, 1, 8);
    b.publish(0, Doing::Works, |_| 5);
    mark(&mut a, MarkerOp::End, 1, 1050);
    assert_eq!(a.closed()[&WindowId(1)].all, [40, 0]);
    mark(&mut a, MarkerOp::Begin, 2, 1060);
    let a = Regions::<u64>::new(&words, 2, 0, 9);
    mark(&mut b, MarkerOp::End, 2, 1100);
    assert!(b.closed().is_empty() && a.closed().is_empty());
}

#[test]
fn what_is_published_is_read_whole() {
    #[derive(Clone, Copy, Default, Debug, PartialEq)]
    struct Twice([u64; 20]);
    impl Add for Twice {
        type Output = Self;
        fn add(self, other: Self) -> Self {
            Twice(std::array::from_fn(|i| self.0[i].wrapping_add(other.0[i])))
        }
    }
    impl Sub for Twice {
        type Output = Self;
        fn sub(self, other: Self) -> Self {
            Twice(std::array::from_fn(|i| self.0[i].wrapping_sub(other.0[i])))
        }
    }
    impl Measured for Twice {
        const WORDS: usize = 20;
        fn time_ps(&self) -> u64 {
            self.0[0]
        }
        fn put(&self, _: bool, put: &mut impl FnMut(u64)) {
            self.0.into_iter().for_each(put);
        }
        fn take(take: &mut impl FnMut() -> u64) -> Self {
            Twice(std::array::from_fn(|_| take()))
        }
        fn asleep_until(self, _: u64, _: bool) -> Self {
            self
        }
    }
    let words: Vec<_> = std::iter::repeat_with(AtomicU64::default)
        .take(2 * region_words(2, Twice::WORDS))
        .collect();
    let [mut writer, mut reader] = [0, 1].map(|me| Regions::<Twice>::new(&words, 2, me, 1));
    writer.publish(0, Doing::Works, |_| Twice::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..50_000).for_each(|n| writer.publish(0, Doing::Works, |_| Twice([n; 20])))
        });
        for n in 0..50_000 {
            reader.begin(WindowId(1), Twice([n; 20]));
            reader.end(WindowId(1), Twice([n; 20]));
            let all = &reader.closed()[&WindowId(1)].all[0].0;
            assert!(all.iter().all(|word| *word == all[0]), "{all:?}");
        }
    });
}

/// A word that changes often, and one that seldom does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Two(u64, u64);

impl Add for Two {
    type Output = Two;
    fn add(self, other: Two) -> Two {
        Two(self.0 + other.0, self.1 + other.1)
    }
}

impl Sub for Two {
    type Output = Two;
    fn sub(self, other: Two) -> Two {
        Two(self.0 - other.0, self.1 - other.1)
    }
}

impl Measured for Two {
    const WORDS: usize = 2;
    fn time_ps(&self) -> u64 {
        self.0
    }
    fn put(&self, seldom: bool, put: &mut impl FnMut(u64)) {
        put(self.0);
        if seldom {
            put(self.1);
        }
    }
    fn take(take: &mut impl FnMut() -> u64) -> Two {
        Two(take(), take())
    }
    fn asleep_until(self, _: u64, _: bool) -> Two {
        self
    }
}

/// Both places get what has changed, and a machine that comes again believes nothing that it finds there.
#[test]
fn words_that_seldom_change_are_published_when_they_have() {
    let words: Vec<_> = (0..2 * region_words(2, Two::WORDS))
        .map(|_| AtomicU64::new(0))
        .collect();
    let a = Regions::<Two>::new(&words, 2, 0, 1);
    let seen = |expected| assert_eq!(a.of(1, Two(99, 0)), expected);
    let mut b = Regions::new(&words, 2, 1, 7);
    for (now, version) in [(Two(1, 10), 0), (Two(2, 10), 0), (Two(3, 10), 0)] {
        b.publish(version, Doing::Works, |_| now);
        seen((7, now));
    }
    for now in [Two(4, 20), Two(5, 20), Two(6, 20)] {
        b.publish(1, Doing::Works, |_| now);
        seen((7, now));
    }
    let mut again = Regions::new(&words, 2, 1, 8);
    for now in [Two(1, 0), Two(2, 0), Two(3, 0)] {
        again.publish(1, Doing::Works, |_| now);
        seen((8, now));
    }
}
