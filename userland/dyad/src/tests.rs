//! Programs run in the emulated system, whose migrations behave like the kernel's: each ISA has
//! its own native stack, and a migration continues where the other side left off.

mod counts;
mod threads;

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use dyad_host::{Config, Outcome};

use crate::prelude::task::*;
use crate::sync::PATIENCE_NS;
use crate::{report, rt, sys, thread};

const X: Isa = Isa::X86_64;
const A: Isa = Isa::Aarch64;

fn id(n: u64) -> NodeId {
    NodeId::new(n).unwrap()
}

fn run(nodes: &[Isa], entry: fn(u64) -> !) -> Outcome {
    let config = Config {
        nodes: nodes.to_vec(),
        ..Config::default()
    };
    dyad_host::run(config, entry)
}

/// Runs an async block as the main task on the given nodes.
macro_rules! program {
    ($nodes:expr, $body:block) => {{
        async fn main() -> Result<()> {
            $body
            #[allow(unreachable_code)]
            Ok(())
        }
        run($nodes, |argument| rt::main_without_args(argument, main))
    }};
}

/// What becomes of a program with this main task.
macro_rules! code_of {
    ($main:ident) => {
        run(&[X, A], |argument| rt::main_without_args(argument, $main)).code
    };
}

/// Longer than what waits is patient.
const LONG: Duration = Duration::from_nanos(3 * PATIENCE_NS);
const HALF: Duration = Duration::from_nanos(PATIENCE_NS / 2);

/// A thread on node 1 does `work`, and is lost with it afterwards.
fn lose(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let done = Arc::new(AtomicBool::new(false));
    let says = done.clone();
    let lost = thread::spawn_on(id(1), move || {
        work();
        says.store(true, Ordering::Release);
        loop {
            thread::yield_now();
        }
    })?;
    while !done.load(Ordering::Acquire) {
        thread::yield_now();
    }
    dyad_host::kill_node(id(1));
    let dead = lost.join().err().and_then(|e: Error| e.system());
    assert_eq!(dead, Some(sys::Error::NodeDead));
    Ok(())
}

// Behind the macros, which they use.
mod channels;
mod heap;
mod pieces;
mod waiting;

/// Node numbers of the migrations, as `from to` digits.
fn trace(outcome: &Outcome) -> Vec<String> {
    let pairs = outcome.migrations.iter();
    pairs.map(|(from, to)| format!("{from}{to}")).collect()
}

#[test]
fn a_task_hops_and_keeps_what_it_holds() {
    let outcome = program!(&[X, A], {
        let mut seen = Vec::new();
        let on_stack_of_future = [7u64; 100];
        let inside = &on_stack_of_future[50];
        for _ in 0..10 {
            migrate(A).await?;
            assert_eq!((isa(), node()), (A, id(1)));
            seen.push(node());
            migrate(X).await?;
            assert_eq!((isa(), node()), (X, id(0)));
            seen.push(node());
        }
        // Being there already is not a migration.
        migrate(X).await?;
        migrate_to(id(0)).await?;
        assert_eq!((seen.len(), *inside), (20, 7));
        let crossings = crate::task::migrations();
        assert_eq!(crossings.len(), 2);
        assert!(crossings.iter().all(|c| c.count == 10));
        println!("done");
    });
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "done\n"));
    assert_eq!(outcome.migrations.len(), 20);
}

/// A task that looks for messages goes on while another one does nothing but move.
#[test]
fn who_watches_is_woken_while_another_task_moves_alone() {
    let outcome = program!(&[X, A], {
        let watcher = spawn(async {
            let mut looks = 0;
            core::future::poll_fn(|cx| {
                looks += 1;
                if looks == 5 {
                    return core::task::Poll::Ready(());
                }
                crate::executor::watch(cx.waker().clone());
                core::task::Poll::Pending
            })
            .await;
        });
        for _ in 0..20 {
            migrate(A).await?;
            migrate(X).await?;
        }
        assert!(watcher.is_finished());
    });
    assert_eq!(outcome.code, 0);
    assert!(outcome.migrations.len() >= 40);
}

/// A plain move would leave the executor behind: it is refused, and nothing has moved.
#[test]
fn a_task_does_not_move_as_a_plain_thread() {
    let outcome = program!(&[X, A], {
        let there = crate::thread::migrate(isa().other());
        assert_eq!(there, Err(sys::Error::Denied));
        assert_eq!(crate::thread::migrate_to(id(1)), Err(sys::Error::Denied));
        assert_eq!((isa(), node()), (X, id(0)));
        migrate(A).await?;
        assert_eq!(crate::thread::migrate(X), Err(sys::Error::Denied));
        assert_eq!((isa(), node()), (A, id(1)));
        // Other threads are plain ones.
        let other = crate::thread::spawn(|| {
            let moved = crate::thread::migrate(X);
            (moved, isa(), node())
        })?;
        assert_eq!(other.join()?, (Ok(()), X, id(0)));
    });
    assert_eq!(
        (outcome.code, trace(&outcome)),
        (0, vec!["01".into(), "10".into()])
    );
}

#[test]
fn targets_are_own_node_then_lowest_live() {
    let outcome = program!(&[X, A, X, A], {
        migrate_to(id(2)).await?;
        migrate(X).await?;
        assert_eq!(node(), id(2));
        dyad_host::kill_node(id(1));
        migrate(A).await?;
        assert_eq!(node(), id(3));
        migrate(X).await?;
        assert_eq!(node(), id(0));
    });
    assert_eq!(outcome.code, 0);
    assert_eq!(trace(&outcome), ["02", "23", "30"]);
}

#[test]
fn a_refused_migration_leaves_the_task_where_it_is() {
    let outcome = program!(&[X, X], {
        assert_eq!(migrate(A).await, Err(sys::Error::NoIsa));
        assert_eq!(migrate_to(id(5)).await, Err(sys::Error::NoSuchNode));
        dyad_host::kill_node(id(1));
        assert_eq!(migrate_to(id(1)).await, Err(sys::Error::NodeDead));
        assert_eq!(node(), id(0));
        let e = Error::from(migrate(A).await.unwrap_err());
        assert_eq!(e.system(), Some(sys::Error::NoIsa));
    });
    assert_eq!((outcome.code, outcome.migrations.len()), (0, 0));
}

#[test]
fn tasks_stay_on_their_nodes() {
    let outcome = program!(&[X, A, X], {
        let tasks: Vec<_> = (0..3)
            .map(|n| {
                spawn(async move {
                    for round in 0..5 {
                        let target = id((n + round) % 3);
                        migrate_to(target).await.unwrap();
                        for _ in 0..3 {
                            assert_eq!(node(), target);
                            yield_now().await;
                        }
                        sleep(Duration::from_micros(50 * n)).await;
                        assert_eq!(node(), target);
                    }
                    n
                })
            })
            .collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await;
            assert_eq!(node(), id(0));
        }
        assert_eq!(sum, 3);
    });
    assert_eq!(outcome.code, 0);
}

#[test]
fn what_is_ready_here_runs_before_the_thread_moves() {
    let outcome = program!(&[X, A], {
        let hop = async |name: &'static str| {
            migrate(A).await.unwrap();
            println!("{name} on {}", isa());
        };
        let first = spawn(async move { hop("first").await });
        let second = spawn(async move { hop("second").await });
        let third = spawn(async { println!("third on {}", isa()) });
        third.await;
        first.await;
        second.await;
    });
    assert_eq!(
        outcome.output,
        "third on x86_64\nfirst on aarch64\nsecond on aarch64\n"
    );
    // One move served both, and one brought the main task's turn back.
    assert_eq!(trace(&outcome), ["01", "10"]);
}

#[test]
fn a_busy_task_does_not_hold_the_others_back() {
    let outcome = program!(&[X, A], {
        let stop = Rc::new(Cell::new(false));
        let seen = stop.clone();
        let busy = spawn(async move {
            while !seen.get() {
                assert_eq!(isa(), X);
                yield_now().await;
            }
        });
        for _ in 0..10 {
            migrate(A).await?;
            migrate(X).await?;
        }
        stop.set(true);
        busy.await;
    });
    assert_eq!(outcome.code, 0);
}

#[test]
fn timers_fire_in_order_and_on_the_right_node() {
    let outcome = program!(&[X, A], {
        let start = Instant::now();
        let late = spawn(async {
            sleep(Duration::from_secs(3600)).await;
            println!("late");
        });
        let early = spawn(async {
            migrate(A).await.unwrap();
            sleep(Duration::from_secs(60)).await;
            println!("early on {}", isa());
        });
        let nap = Duration::from_secs(1800);
        join(sleep(nap), sleep(Duration::from_secs(1))).await;
        println!("middle");
        assert!(start.elapsed() >= nap && start.elapsed() < 2 * nap);
        late.await;
        assert!(early.is_finished());
        early.await;
        // A point in the past is no wait.
        sleep_until(start).await;
    });
    assert_eq!(outcome.output, "early on aarch64\nmiddle\nlate\n");
}

#[test]
fn a_dropped_sleep_leaves_no_timer_behind() {
    let outcome = program!(&[X, A], {
        {
            let mut nap = pin!(sleep(Duration::from_secs(1)));
            poll_fn(|cx| {
                assert!(nap.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        poll_fn::<(), _>(|_| {
            println!("polled");
            Poll::Pending
        })
        .await;
    });
    let once = "polled\nerror: every task waits for something that cannot happen\n";
    assert_eq!((outcome.code, outcome.output.as_str()), (1, once));
}

#[test]
fn a_newer_request_replaces_an_older_one() {
    let outcome = program!(&[X, A, X], {
        let (first, second) = join(migrate_to(id(1)), migrate_to(id(2))).await;
        assert_eq!((first, second), (Err(sys::Error::Again), Ok(())));
        assert_eq!(node(), id(2));
    });
    assert_eq!(outcome.code, 0);
    assert_eq!(trace(&outcome), ["02"]);
}

#[test]
fn a_dropped_request_moves_nothing() {
    let outcome = program!(&[X, A], {
        {
            let mut request = pin!(migrate(A));
            poll_fn(|cx| {
                assert!(request.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        yield_now().await;
        assert_eq!(isa(), X);
    });
    assert_eq!((outcome.code, outcome.migrations.len()), (0, 0));
}

#[test]
fn tasks_of_a_dead_node_go_on_elsewhere() {
    let outcome = program!(&[X, A], {
        let orphan = spawn(async {
            migrate(A).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            println!("orphan on {}", isa());
        });
        // By now the orphan sleeps there; its node dies while the thread is here.
        sleep(Duration::from_millis(10)).await;
        dyad_host::kill_node(id(1));
        orphan.await;
    });
    assert_eq!(outcome.output, "orphan on x86_64\n");
}

#[test]
fn all_tasks_go_where_the_thread_is_asked_to_go() {
    use crate::task::request_migration;
    let outcome = program!(&[X, A, X], {
        let other = spawn(async {
            sleep(Duration::from_secs(1)).await;
            assert_eq!(node(), id(2));
            migrate_to(id(0)).await.unwrap();
            println!("other on {}", node());
        });
        assert_eq!(request_migration(id(1)), Ok(None));
        assert_eq!(node(), id(0));
        yield_now().await;
        assert_eq!((isa(), node()), (A, id(1)));
        // The newer one counts, and while all sleep, too.
        assert_eq!(request_migration(id(0)), Ok(None));
        assert_eq!(request_migration(id(2)), Ok(Some(id(0))));
        sleep(Duration::from_millis(1)).await;
        assert_eq!(node(), id(2));
        // Being there already is not a migration.
        request_migration(id(2)).unwrap();
        yield_now().await;
        other.await;
        assert_eq!(node(), id(2));
    });
    assert_eq!(outcome.code, 0);
    assert_eq!(outcome.output, "other on 0\n");
    assert_eq!(trace(&outcome), ["01", "12", "20", "02"]);
}

#[test]
fn a_task_that_is_about_to_migrate_keeps_its_own_way() {
    let outcome = program!(&[X, A, X], {
        let (own, ()) = join(migrate_to(id(1)), async {
            crate::task::request_migration(id(2)).unwrap();
        })
        .await;
        assert_eq!((own, node()), (Ok(()), id(1)));
    });
    assert_eq!(outcome.code, 0);
    assert_eq!(trace(&outcome), ["02", "21"]);
}

#[test]
fn requests_are_refused_and_withdrawn() {
    use crate::task::{request_migration, withdraw_migration};
    let outcome = program!(&[X, A], {
        let worker = crate::thread::spawn(|| ()).unwrap();
        let ended = worker.thread();
        worker.join().unwrap();
        // Its last moments may not be over.
        while crate::thread::request_migration(ended, id(1)).is_ok() {
            crate::thread::yield_now();
        }
        assert_eq!(
            crate::thread::request_migration(ended, id(1)),
            Err(sys::Error::NotFound)
        );
        assert_eq!(request_migration(id(2)), Err(sys::Error::NoSuchNode));
        assert_eq!(withdraw_migration(), Ok(None));
        request_migration(id(1)).unwrap();
        assert_eq!(withdraw_migration(), Ok(Some(id(1))));
        yield_now().await;
        assert_eq!(node(), id(0));
        // It dies after it has been asked for.
        request_migration(id(1)).unwrap();
        dyad_host::kill_node(id(1));
        yield_now().await;
        assert_eq!(node(), id(0));
        assert_eq!(request_migration(id(1)), Err(sys::Error::NodeDead));
    });
    assert_eq!((outcome.code, outcome.migrations.len()), (0, 0));
}

#[test]
fn results_become_exit_codes() {
    let failed = program!(&[X, A], {
        migrate(A).await?;
        Err(Error::msg("no luck"))?;
    });
    assert_eq!(
        (failed.code, failed.output.as_str()),
        (1, "error: no luck\n")
    );
    let usage = program!(&[X, A], { Err(Error::usage("say it differently"))? });
    assert_eq!(usage.code, 2);
    let system = program!(&[X, X], { migrate(A).await? });
    assert_eq!(system.code, 1);
    assert!(
        system
            .output
            .contains("no live node has the instruction set")
    );
    let stalled = program!(&[X, A], { std::future::pending::<()>().await });
    assert_eq!(stalled.code, 1);
    assert!(stalled.output.contains("every task waits"));
    // The program ends with its main task, whatever the others do.
    let ended = program!(&[X, A], { drop(spawn(std::future::pending::<()>())) });
    assert_eq!(ended.code, 0);
}

#[test]
fn arguments_reach_the_main_task() {
    async fn main(args: Args) {
        println!("{}", args.value("--class").unwrap_or("none"));
    }
    let config = Config {
        args: "--class W".to_string(),
        ..Config::default()
    };
    let outcome = dyad_host::run(config, |argument| rt::main_with_args(argument, main));
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "W\n"));
}

#[test]
fn long_lines_come_out_whole() {
    let outcome = program!(&[X, A], {
        println!("{}|", "é".repeat(3000));
        print!("no end");
    });
    assert_eq!(outcome.output, format!("{}|\nno end", "é".repeat(3000)));
}

#[test]
fn reports_arrive() {
    let outcome = program!(&[X, A], {
        assert!(report::check("a.good", true, 1));
        assert!(!report::check("a.bad", false, format_args!("{} of 2", 1)));
        report::counter("things", 2);
        report::counter("things", 3);
    });
    // A failed check is the run's business; the program says by itself how it ends.
    assert_eq!(outcome.code, 0);
    let checks: Vec<_> = outcome
        .checks
        .iter()
        .map(|c| (c.name.as_str(), c.ok))
        .collect();
    assert_eq!(checks, [("a.good", true), ("a.bad", false)]);
    assert_eq!(outcome.checks[1].detail, "1 of 2");
    assert_eq!(outcome.counters["things"], 5);
}

#[test]
fn only_tasks_can_move() {
    let mut request = pin!(migrate_to(id(1)));
    let waker = std::task::Waker::noop();
    let mut cx = std::task::Context::from_waker(waker);
    assert_eq!(
        request.as_mut().poll(&mut cx),
        Poll::Ready(Err(sys::Error::Denied))
    );
}

#[test]
fn tasks_talk_by_messages_while_they_hop() {
    use crate::msg::{Config, Error, Kind, Level, Mode, Network};
    let outcome = program!(&[X, A], {
        let network = Network::new(Config::new(2))?;
        let serving = network.clone();
        let server = spawn(async move {
            let mut end = serving.endpoint(1, Mode::Doorbell)?;
            let mut bytes = Vec::new();
            loop {
                let e = end.recv_async(&mut bytes, None).await?;
                if e.kind == Kind::Message {
                    return Ok::<u64, crate::Error>(e.tag);
                }
                // The answer comes from the other ISA than the last one.
                migrate(isa().other()).await?;
                bytes.reverse();
                end.try_reply(&e, e.tag + 1, &bytes)?;
            }
        });
        let mut end = network.endpoint(0, Mode::Doorbell)?;
        let mut answer = Vec::new();
        for n in 0..10 {
            let e = end
                .call_async(1, Level::Urgent, n, b"desserts", &mut answer, None)
                .await?;
            assert_eq!((e.tag, &answer[..]), (n + 1, &b"stressed"[..]));
        }
        // Nobody answers this; its number is forgotten with it.
        {
            let call = end.call_async(0, Level::Normal, 0, &[], &mut answer, None);
            let mut call = pin!(call);
            let poll = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx)));
            assert!(poll.await.is_pending());
        }
        let mut own = Vec::new();
        let e = end.try_recv(&mut own)?.expect("the call came to itself");
        end.try_reply(&e, 0, &[])?;
        assert_eq!(end.try_recv(&mut own)?, None);
        assert_eq!(end.counters().late_replies, 1);
        // The time comes; a full ring is waited for until somebody takes something.
        let soon = Instant::now() + Duration::from_millis(2);
        let nothing = end.recv_async(&mut own, Some(soon.as_nanos())).await;
        assert_eq!(nothing, Err(Error::TimedOut));
        while end.try_send(0, Level::Bulk, 0, &[]).is_ok() {}
        let soon = Instant::now() + Duration::from_millis(2);
        let full = end.send_async(0, Level::Bulk, 0, &[], Some(soon.as_nanos()));
        assert_eq!(full.await, Err(Error::TimedOut));
        end.send_async(1, Level::Bulk, 77, &[], None).await?;
        println!("{}", server.await?);
    });
    assert_eq!((outcome.code, outcome.output.as_str()), (0, "77\n"));
    assert!(outcome.migrations.len() >= 10);
}

/// A member whose thread has ended without a word would hold the writer of the group up until its deadline.
#[test]
fn an_endpoint_that_is_dropped_is_closed() {
    use crate::msg::{Config, Error, Level, Mode, Network};
    let outcome = program!(&[X, A], {
        let network = Network::new(Config::new(2))?;
        let mut end = network.endpoint(0, Mode::Doorbell)?;
        end.open_group(0)?;
        let theirs = network.clone();
        let member = crate::thread::spawn_on(id(1), move || -> Result<()> {
            let mut end = theirs.endpoint(1, Mode::Doorbell)?;
            end.join(0)?;
            end.send(0, Level::Normal, 5, b"is there", None)?;
            Ok(())
        })?;
        member.join()??;
        let mut bytes = Vec::new();
        assert_eq!(end.recv(&mut bytes, None)?.tag, 5);
        assert_eq!(end.check_peer(1), Err(Error::Closed));
        let full = end.config().group_lines;
        for n in 0..2 * full {
            assert_eq!(end.multicast(0, n, &[], None), Ok(0));
        }
        assert_eq!(end.counters().put_out, 0);
    });
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}

/// Without the reservation the calls would wait until their time has come.
#[test]
fn a_station_whose_thread_is_lost_before_it_opens_it_is_dead() {
    use crate::msg::{Config, Error, Level, Mode, Network};
    let outcome = program!(&[X, A], {
        let network = Network::new(Config::new(2))?;
        let there = crate::thread::spawn_on(id(1), || -> () {
            loop {
                crate::thread::yield_now();
            }
        })?;
        assert_eq!(network.reserve(2, there.thread()), Err(Error::NotFound));
        network.reserve(1, there.thread())?;
        let mut end = network.endpoint(0, Mode::Doorbell)?;
        assert_eq!(end.check_peer(1), Ok(()));
        // There is room, so a message that is sent before waits for whoever opens the station.
        end.try_send(1, Level::Normal, 0, &[])?;
        dyad_host::kill_node(id(1));
        drop(there.join());
        let (dead, mut answer) = (Error::NodeDead { station: 1 }, Vec::new());
        let called = end.call(1, Level::Normal, 0, &[], &mut answer, None);
        assert_eq!(called.map(drop), Err(dead));
        assert_eq!(end.recv(&mut answer, None).map(drop), Err(dead));
        // Another thread opens it: it is alive again.
        let mut other = network.endpoint(1, Mode::Doorbell)?;
        end.try_send(1, Level::Normal, 7, &[])?;
        assert_eq!(other.recv(&mut answer, None)?.tag, 0);
        assert_eq!(other.recv(&mut answer, None)?.tag, 7);
        // Whoever has it keeps it.
        let ended = crate::thread::spawn(|| ())?;
        network.reserve(1, ended.thread())?;
        ended.join()?;
        assert_eq!(end.check_peer(1), Ok(()));
    });
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}

#[test]
fn messages_to_a_full_ring_go_when_there_is_room() {
    use crate::msg::{Config, Level, Mode, Network};
    let outcome = program!(&[X, A], {
        let network = Network::new(Config::new(2))?;
        let sending = network.clone();
        let sender = spawn(async move {
            let mut end = sending.endpoint(0, Mode::Doorbell)?;
            for n in 0..1000 {
                end.send_async(1, Level::Normal, n, &[1; 500], None).await?;
            }
            Ok::<u64, crate::Error>(end.counters().full_waits)
        });
        let mut end = network.endpoint(1, Mode::Doorbell)?;
        let mut bytes = Vec::new();
        for n in 0..1000 {
            let e = end.recv_async(&mut bytes, None).await?;
            assert_eq!((e.tag, &bytes[..]), (n, &[1; 500][..]));
        }
        assert!(sender.await? > 0, "the ring was never full");
    });
    assert_eq!(outcome.code, 0, "{}", outcome.output);
}
