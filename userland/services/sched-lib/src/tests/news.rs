//! What a scheduler makes of the events of a thread.

use core::cell::Cell;

use dyad_abi::cap::Woken;

use super::*;

const DEADLINE: u64 = 55;

/// The news of an event, and whether the thread was asked for its deadline.
fn news(why: Woken, deadline: Option<u64>) -> (Option<News>, bool) {
    let asked = Cell::new(false);
    let news = News::of(why, || {
        asked.set(true);
        deadline
    });
    (news, asked.get())
}

#[test]
fn each_event_of_a_thread_is_news_for_its_scheduler() {
    for &why in Woken::ALL {
        let expected = match why {
            Woken::Ready | Woken::Arrived | Woken::NodeDied => (Some(News::Ready), false),
            Woken::Sleeps => (Some(News::Sleeps(Some(DEADLINE))), true),
            Woken::Ended => (None, false),
        };
        assert_eq!(news(why, Some(DEADLINE)), expected, "{why:?}");
    }
    assert_eq!(news(Woken::Sleeps, None), (Some(News::Sleeps(None)), true));
}

/// The thread of a node that has died has no other event: it runs, and its call returns an error.
#[test]
fn a_thread_runs_after_each_event_that_says_it_is_ready() {
    for &why in Woken::ALL {
        let mut s = Scheduler::<N>::new();
        if let (Some(news), _) = news(why, Some(DEADLINE)) {
            s.told(1, IDLE, news);
        }
        let (ran, next) = (runs(&mut s, 0), s.next(0, table));
        let (expected, until) = match why {
            Woken::Ready | Woken::Arrived | Woken::NodeDied => (Some(1), None),
            Woken::Sleeps => (None, Some(DEADLINE)),
            Woken::Ended => (None, None),
        };
        assert_eq!((ran, next), (expected, Next::Wait(until)), "{why:?}");
    }
}
