//! An instruction that is not interpreted.

use core::hint::black_box;
use core::time::Duration;

use dyad::emulation::{self, refused, status};
use dyad::prelude::thread::*;
use dyad::{report, sys, thread};

use crate::trip::other_node;
use crate::work;

/// How long it may take until the thread has been stopped.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long the program waits for a request.
const ASKED: Duration = Duration::from_secs(120);

fn is_emulated() -> bool {
    emulation::progress().is_some_and(|p| p.status == status::EMULATED)
}

/// Asks that the calling thread, the first one, be moved, and computes until it is interpreted there; no
/// point before. Whether all that was computed was the same.
///
/// # Errors
///
/// As [`emulation::request`]; if it takes too long.
pub fn until_emulated(to: NodeId) -> Result<bool> {
    let expected = work::registers(3, 50);
    let begin = Instant::now();
    emulation::request(to, begin + Duration::from_micros(200))?;
    let mut same = true;
    while !is_emulated() {
        same &= work::registers(3, 50) == expected;
        if begin.elapsed() > PATIENCE {
            let p = emulation::progress().ok_or(sys::Error::NotReady)?;
            return Err(Error::msg(format!("it {p}, after {PATIENCE:?}")));
        }
    }
    Ok(same)
}

/// Comes to one while it is interpreted; none until it has been refused.
#[inline(never)]
fn come_to_it(to: NodeId) -> Result<bool> {
    let kept = black_box([3u64, 5, 8, 13]);
    let boxed = Box::new(work::registers(kept[0], 50));
    let same = until_emulated(to)?;
    let before = work::registers(kept[1], 50);
    emulation::strange();
    let after = work::registers(kept[1], 50);
    Ok(same && before == after && kept == [3, 5, 8, 13] && *boxed == work::registers(3, 50))
}

/// Comes to one again and again until it has been refused. From outside it is asked for.
fn refuse_once() -> Result<bool> {
    let begin = Instant::now();
    let expected = work::registers(5, 50);
    let mut same = true;
    loop {
        same &= work::registers(5, 50) == expected;
        emulation::strange();
        let p = emulation::progress().ok_or(sys::Error::NotReady)?;
        if p.status == status::BACK {
            println!("on {}: it {p}", dyad::isa());
            return Ok(same && p.outcome == refused::UNKNOWN);
        }
        if begin.elapsed() > ASKED {
            return Err(Error::msg("nobody asks"));
        }
    }
}

/// Works until it has been moved `moves` times from outside; before and after that, once, it refuses.
pub fn asked(moves: u64, turns: u64) -> Result<()> {
    println!("works on {}", dyad::isa());
    let mut good = refuse_once()?;
    let expected = work::round(3, 7, turns);
    let begin = Instant::now();
    while emulation::progress().is_none_or(|p| p.landings < moves || p.status != status::LANDED) {
        good &= work::round(3, 7, turns) == expected && expected.is_ok();
        if begin.elapsed() > ASKED {
            return Err(Error::msg("nobody asks"));
        }
    }
    println!("moved {moves} times, to {}", dyad::isa());
    good &= refuse_once()?;
    // Who has asked looks what has become of it, which nobody answers when the program has ended.
    thread::sleep(Duration::from_secs(1));
    report::check("emulate-threads.asked", good, format_args!("{moves} moves"));
    Ok(())
}

/// Both directions.
pub fn refused() -> Result<()> {
    let mut came_back = 0;
    for round in 0..2 {
        let (here, isa, to) = (dyad::node(), dyad::isa(), other_node()?);
        let same = come_to_it(to)?;
        let p = emulation::progress().ok_or(sys::Error::NotReady)?;
        println!("on {isa}: it {p}");
        // Nothing is left of the request.
        dyad::thread::migrate_point();
        let native = dyad::node() == here && dyad::isa() == isa;
        let named = p.refused_at == emulation::strange_at() && {
            let (bytes, len) = p.refused_bytes;
            match isa {
                Isa::X86_64 => len >= 2 && bytes[..2] == [0xd9, 0xd0],
                Isa::Aarch64 => len == 4 && bytes[..4] == [0xff, 0x4f, 0xdf, 0x9a],
            }
        };
        let refused = p.status == status::BACK && p.outcome == refused::UNKNOWN && p.steps > 0;
        came_back += u64::from(native && same && refused && named);
        if round == 0 {
            dyad::thread::migrate_to(to)?;
        }
    }
    report::check(
        "emulate-threads.refused",
        came_back == 2,
        format_args!("{came_back} of 2"),
    );
    Ok(())
}
