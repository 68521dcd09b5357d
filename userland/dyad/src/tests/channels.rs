//! Channels of threads and of tasks, in the emulated system.

use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::pin::pin;
use core::sync::atomic::{AtomicU64, Ordering};
use core::task::{Context, Poll, Waker};
use std::format;

use super::{A, HALF, LONG, X, id, lose, run};
use crate::prelude::task::*;
use crate::sync::mpsc::{self, RecvError, SendError, TrySendError};
use crate::task::{self, Elapsed, timeout};
use crate::{rt, sys, thread};

#[test]
fn channels_of_threads_lose_nothing_and_end() {
    async fn main() -> Result<()> {
        const EACH: u64 = 200;
        let (send, receive) = mpsc::sync_channel(4);
        assert_eq!(receive.try_recv(), Err(RecvError::Empty));
        let soon = Duration::from_millis(2);
        assert_eq!(receive.recv_timeout(soon), Err(RecvError::Timeout));
        let mut threads = Vec::new();
        for n in 0..4 {
            let send = send.clone();
            threads.push(thread::spawn_on(id(n % 2), move || {
                (0..EACH).try_for_each(|i| send.send((n, i)))
            })?);
        }
        drop(send);
        let mut next = [0; 4];
        for (from, i) in receive.iter() {
            assert_eq!(i, next[from as usize], "in the order of each sender");
            next[from as usize] += 1;
        }
        assert_eq!(next, [EACH; 4]);
        for thread in threads {
            thread.join()?.expect("all was received");
        }
        assert_eq!(receive.recv(), Err(RecvError::Disconnected));

        // A full channel, and one whose receiver has gone.
        let (send, receive) = mpsc::sync_channel(1);
        send.send(1).unwrap();
        assert_eq!(send.try_send(2), Err(TrySendError::Full(2)));
        drop(receive);
        assert_eq!(send.send(3), Err(SendError(3)));
        assert_eq!(send.try_send(4), Err(TrySendError::Disconnected(4)));
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// Who waits at a channel is woken when the other end goes. A thread that is not woken goes on when its patience is at an
/// end: the quickest of several rounds tells the two apart.
#[test]
fn the_end_of_a_channel_wakes_all_who_wait_there() {
    async fn main() -> Result<()> {
        use std::time::Instant;
        // The others are about to sleep, or sleep.
        let nap = || std::thread::sleep(Duration::from_millis(30));
        let (mut received, mut sent) = (Duration::MAX, Duration::MAX);
        for _ in 0..5 {
            let (send, receive) = mpsc::channel::<u8>();
            let sender = thread::spawn_on(id(1), move || {
                nap();
                let begin = Instant::now();
                drop(send);
                begin
            })?;
            assert_eq!(receive.recv(), Err(RecvError::Disconnected));
            let end = Instant::now();
            received = received.min(end.saturating_duration_since(sender.join()?));

            let (send, receive) = mpsc::sync_channel(1);
            send.send(0).unwrap();
            let senders = [send.clone(), send]
                .map(|send| thread::spawn_on(id(0), move || (send.send(1), Instant::now())));
            nap();
            let begin = Instant::now();
            drop(receive);
            let mut longest = Duration::ZERO;
            for sender in senders {
                let (refused, end) = sender?.join()?;
                assert_eq!(refused, Err(SendError(1)));
                longest = longest.max(end.saturating_duration_since(begin));
            }
            sent = sent.min(longest);
        }
        let soon = Duration::from_millis(100);
        assert!(received < soon && sent < soon, "{received:?}, {sent:?}");
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

#[test]
fn a_channel_says_that_its_sender_was_lost() {
    async fn main() -> Result<()> {
        let (send, receive) = mpsc::channel();
        let lost = thread::spawn_on(id(1), move || {
            send.send(5).unwrap();
            loop {
                thread::yield_now();
            }
        })?;
        assert_eq!(receive.recv(), Ok(5));
        dyad_host::kill_node(id(1));
        assert_eq!(receive.recv(), Err(RecvError::Lost));
        let dead = lost.join().err().and_then(|e: Error| e.system());
        assert_eq!(dead, Some(sys::Error::NodeDead));
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// A deadline that comes before the patience is over is a timeout, also after the loss of the sender.
#[test]
fn a_receiver_with_a_deadline_is_told_that_it_has_come() {
    async fn main() -> Result<()> {
        let (send, receive) = mpsc::channel::<u8>();
        let theirs = send.clone();
        lose(move || {
            theirs.send(1).unwrap();
            core::mem::forget(theirs);
        })?;
        assert_eq!(receive.recv_timeout(HALF), Ok(1));
        drop(send);
        let start = Instant::now();
        assert_eq!(receive.recv_timeout(HALF), Err(RecvError::Timeout));
        assert!(start.elapsed() >= HALF);
        assert_eq!(receive.recv_timeout(LONG), Err(RecvError::Lost));
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// After the loss of others, the ends of a channel wait for each other for as long as it takes.
#[test]
fn the_ends_of_a_channel_outlast_the_losses_of_others() {
    async fn main() -> Result<()> {
        let (send, receive) = mpsc::sync_channel(1);
        let (back, hears) = mpsc::sync_channel(1);
        let theirs = send.clone();
        lose(move || {
            theirs.send(1).unwrap();
            core::mem::forget(theirs);
        })?;
        let slow = thread::spawn_on(id(0), move || {
            send.send(2).unwrap();
            thread::sleep(LONG);
            send.send(3).unwrap();
            drop(send);
            // This receiver is slow too.
            let first = hears.recv();
            thread::sleep(LONG);
            (first, hears.recv(), hears.recv())
        })?;
        assert_eq!(receive.iter().take(2).sum::<u32>(), 3);
        assert_eq!(receive.recv(), Ok(3));
        for n in 1..=3 {
            assert_eq!(back.send(n), Ok(()));
        }
        assert_eq!(slow.join()?, (Ok(1), Ok(2), Ok(3)));
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// A sender that no thread has used is not known to be lost: the iterator goes on.
#[test]
fn the_values_of_a_channel_end_with_its_senders_only() {
    async fn main() -> Result<()> {
        let (send, receive) = mpsc::channel();
        lose(|| ())?;
        let slow = thread::spawn_on(id(0), move || {
            thread::sleep(LONG);
            send.send(7)
        })?;
        assert_eq!((&receive).into_iter().collect::<Vec<_>>(), [7]);
        assert_eq!(slow.join()?, Ok(()));
        assert_eq!(receive.into_iter().next(), None);
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// What is missing is not passed over.
#[test]
fn the_values_of_lost_senders_do_not_just_end() {
    async fn main() -> Result<()> {
        let (send, receive) = mpsc::channel();
        lose(move || {
            send.send(1).unwrap();
            core::mem::forget(send);
        })?;
        println!("{}", receive.iter().count());
        Ok(())
    }
    let outcome = run(&[X, A], |a| rt::main_without_args(a, main));
    assert_eq!((outcome.code, outcome.output.as_str()), (101, ""));
}

#[test]
fn a_full_channel_says_that_its_receiver_was_lost() {
    async fn main() -> Result<()> {
        let (send, receive) = mpsc::sync_channel(1);
        send.send(0).unwrap();
        lose(move || {
            assert_eq!(receive.recv(), Ok(0));
            core::mem::forget(receive);
        })?;
        send.send(1).unwrap();
        assert_eq!(send.send(2), Err(SendError(2)));
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// The errors are errors, and can be told, whatever was to be sent.
#[test]
fn errors_of_channels_need_nothing_of_the_values() {
    #[derive(Clone, Copy)]
    struct Mute;
    fn told(e: impl core::error::Error) -> String {
        format!("{e}, {e:?}")
    }
    assert_eq!(
        [
            told(SendError(Mute)),
            told(TrySendError::Full(Mute)),
            told(TrySendError::Disconnected(Mute)),
            told(task::SendError(Mute)),
            told(task::TrySendError::Full(Mute)),
            told(task::TrySendError::Closed(Mute)),
        ],
        [
            "the receiver has gone, SendError { .. }",
            "the channel is full, Full(..)",
            "the receiver has gone, Disconnected(..)",
            "the receiver has gone, SendError { .. }",
            "the channel is full, Full(..)",
            "the receiver has gone, Closed(..)",
        ]
    );
    let ends = format!(
        "{:?} {:?}",
        mpsc::channel::<Mute>(),
        task::channel::<Mute>(1)
    );
    assert_eq!(ends.matches("Sender { .. }").count(), 2, "{ends}");
    assert_eq!(ends.matches("Receiver { .. }").count(), 2, "{ends}");
}

#[test]
fn channels_of_tasks_lose_nothing_and_end() {
    async fn main() -> Result<()> {
        let (send, mut receive) = task::channel(2);
        let mut tasks = Vec::new();
        for n in 0..3u64 {
            let send = send.clone();
            tasks.push(spawn(async move {
                if n == 1 {
                    migrate(A).await.unwrap();
                }
                for i in 0..50 {
                    send.send((n, i)).await.unwrap();
                }
            }));
        }
        drop(send);
        let mut next = [0; 3];
        while let Some((from, i)) = receive.recv().await {
            assert_eq!(i, next[from as usize]);
            next[from as usize] += 1;
        }
        assert_eq!(next, [50; 3]);
        for task in tasks {
            task.await;
        }
        let (send, receive) = task::channel(1);
        send.send(1).await.unwrap();
        assert_eq!(send.try_send(2), Err(task::TrySendError::Full(2)));
        // A sender that waits for room learns that nobody receives any more.
        let waiting = send.clone();
        let waits = spawn(async move { waiting.send(3).await });
        yield_now().await;
        drop(receive);
        assert_eq!(waits.await, Err(task::SendError(3)));
        assert_eq!(send.try_send(4), Err(task::TrySendError::Closed(4)));
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}

/// A send that is given up leaves the queue, and the next one gets its room.
#[test]
fn sends_that_are_given_up_leave_nothing() {
    struct Woken(AtomicU64);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let woken = [0; 2].map(|n| Arc::new(Woken(AtomicU64::new(n))));
    let wakers = woken.each_ref().map(|w| Waker::from(w.clone()));
    let [mut one, mut two] = wakers.each_ref().map(Context::from_waker);
    let is_woken = |n: usize| woken[n].0.load(Ordering::Relaxed) != 0;

    let (send, mut receive) = task::channel(1);
    assert_eq!(send.try_send(0), Ok(()));
    for n in 0..1000 {
        assert_eq!(pin!(send.send(n)).poll(&mut one), Poll::Pending);
    }
    assert_eq!(Arc::strong_count(&woken[0]), 2, "no one waits");

    let mut first = Box::pin(send.send(1));
    let mut second = Box::pin(send.send(2));
    for _ in 0..2 {
        assert_eq!(first.as_mut().poll(&mut one), Poll::Pending);
        assert_eq!(second.as_mut().poll(&mut two), Poll::Pending);
    }
    let mut recv = |cx: &mut Context<'_>| pin!(receive.recv()).poll(cx);
    assert_eq!(recv(&mut one), Poll::Ready(Some(0)));
    assert!(is_woken(0) && !is_woken(1), "one after the other");
    // The room is reserved for the first send, which is given up.
    assert_eq!(send.try_send(3), Err(task::TrySendError::Full(3)));
    assert_eq!(second.as_mut().poll(&mut two), Poll::Pending);
    drop(first);
    assert!(is_woken(1));
    assert_eq!(second.as_mut().poll(&mut two), Poll::Ready(Ok(())));
    assert_eq!(recv(&mut one), Poll::Ready(Some(2)));
    assert_eq!(send.try_send(3), Ok(()));
}

#[test]
fn tasks_that_wait_for_room_send_in_turn() {
    async fn main() -> Result<()> {
        const EACH: u64 = 100;
        let (send, mut receive) = task::channel(1);
        for n in 0..3 {
            let send = send.clone();
            drop(spawn(async move {
                for _ in 0..EACH {
                    send.send(n).await.unwrap();
                }
            }));
        }
        // One more, which only ever gives up.
        let hurried = spawn(async move {
            for _ in 0..1000 {
                let sent = timeout(Duration::ZERO, send.send(9)).await;
                assert_eq!(sent, Err(Elapsed));
            }
        });
        hurried.await;
        let mut seen = Vec::new();
        while let Some(n) = receive.recv().await {
            seen.push(n);
        }
        assert_eq!(seen.len() as u64, 3 * EACH);
        // The first value finds room at once, and the tasks end one after the other.
        let turns = &seen[1..seen.len() - 2];
        for (i, three) in turns.windows(3).enumerate() {
            assert!(three.iter().sum::<u64>() == 3, "at {i}: {three:?}");
        }
        Ok(())
    }
    assert_eq!(code_of!(main), 0);
}
