//! Invocations.

#![allow(unsafe_code)]

use dyad_abi::record::name;
use dyad_abi::service::{CONSOLE_THREADS, ReportText, console, console_client, program};
use dyad_abi::user::{MAX_REPORT_DETAIL, MAX_REPORT_NAME, MAX_WRITE, PAGE_SIZE, ReportKind};
use dyad_abi::{Error, NodeId, Result};
use dyad_services::budget::{Budget, Limits};
use dyad_services::lines::{LineBuffer, Part, printable, written};
use dyad_services::robust::RobustLock;
use dyad_services::rt::{self, Call};
use dyad_services::shared::Window;
use dyad_sys::cap::{Cap, Hardware};

const PAGES: usize = CONSOLE_THREADS as usize;
const CLIENTS: usize = program::MAX as usize;
/// Bytes copied at a time.
const CHUNK: usize = 256;

/// Beginnings of lines, by client and page.
static LINES: [[RobustLock<LineBuffer>; PAGES]; CLIENTS] =
    [const { [const { RobustLock::new(LineBuffer::new()) }; PAGES] }; CLIENTS];

/// Limits of a client: 256 KiB at once, 64 KiB per second in the long run. They bound what a client that
/// writes without end costs the device and the storage of its output.
const LIMITS: Limits = Limits {
    most: 256 << 10,
    each_ns: 1_000_000_000 / (64 << 10),
};
/// Cost of a line in addition to its bytes: the device prefixes each line with time and place.
const LINE_COST: u32 = 32;

/// Cost of a report in addition to the bytes of its name and detail: the members of its record.
const REPORT_COST: u32 = 96;

static BUDGETS: [RobustLock<Budget>; CLIENTS] =
    [const { RobustLock::new(Budget::new(LIMITS)) }; CLIENTS];

dyad_services::entry!(start, invoked, to 4);

fn start(_: u64) -> ! {
    rt::give_up(format_args!("console has no thread of its own"))
}

fn invoked(call: Call) -> [u64; 4] {
    rt::words(serve(call))
}

fn serve(call: Call) -> Result<u64> {
    let [what, a, b, _] = call.words;
    match what {
        console::WRITE => write(&call, a, b),
        console::REPORT => report(&call, a),
        console::END if call.badge == program::INIT => end(&call, a),
        console::END => Err(Error::Denied),
        _ => Err(Error::BadArgument),
    }
}

fn device() -> Result<Cap<Hardware>> {
    let node = NodeId::new(rt::info()?.console_node).ok_or(Error::Corrupt)?;
    Ok(rt::hardware(node))
}

/// State of a client.
struct Client {
    /// Buffer that is shared with the client.
    window: Window,
    /// Beginnings of its lines.
    lines: &'static [RobustLock<LineBuffer>; PAGES],
    /// Budget of the client.
    budget: &'static RobustLock<Budget>,
}

fn client(badge: u64) -> Result<Client> {
    let at = usize::try_from(badge).map_err(|_| Error::Denied)?;
    let lines = LINES.get(at).ok_or(Error::Denied)?;
    let budget = BUDGETS.get(at).ok_or(Error::Denied)?;
    // SAFETY: 1. Init maps the buffer of a client before the client can invoke. 2. It is in no
    // other use here than through this window.
    let window = unsafe { Window::new(console_client(badge), CONSOLE_THREADS * PAGE_SIZE) };
    Ok(Client {
        window,
        lines,
        budget,
    })
}

/// Writes a line, or a piece of a line of a stream.
fn put(device: Cap<Hardware>, stream: u64, line: &[u8], part: Part) {
    let mut text = [0; MAX_WRITE];
    // The device has no way to say that it is out of order, and there is no program to be told.
    let _ = device.write(written(&mut text, stream, line, part));
}

/// The number of the lines of a client's page among all streams.
fn stream(client: u64, page: usize) -> u64 {
    client * CONSOLE_THREADS + page as u64
}

fn write(call: &Call, offset: u64, len: u64) -> Result<u64> {
    if len > PAGE_SIZE {
        return Err(Error::TooLarge);
    }
    let Client {
        window,
        lines,
        budget,
    } = client(call.badge)?;
    let page = usize::try_from(offset / PAGE_SIZE).map_err(|_| Error::BadArgument)?;
    let mut line = lines.get(page).ok_or(Error::BadArgument)?.try_lock(call)?;
    if line.is_inherited() {
        line.repair();
    }
    let device = device()?;
    let end = offset
        .checked_add(len)
        .filter(|&end| end <= CONSOLE_THREADS * PAGE_SIZE)
        .ok_or(Error::BadArgument)?;
    // Of all threads of the client together.
    let mut budget = budget.try_lock(call)?;
    if !budget.has_some(device.now()?) {
        return Err(Error::Again);
    }
    let mut cost = len as u32;
    let mut at = offset;
    let mut piece = [0; CHUNK];
    while at < end {
        let n = (end - at).min(CHUNK as u64);
        let piece = &mut piece[..n as usize];
        window.read(at, piece).ok_or(Error::BadArgument)?;
        line.push(piece, |text, part| {
            cost += LINE_COST;
            put(device, stream(call.badge, page), text, part);
        });
        at += n;
    }
    budget.spend(cost);
    Ok(len)
}

fn report(call: &Call, offset: u64) -> Result<u64> {
    let Client { window, budget, .. } = client(call.badge)?;
    let word = |at: usize| -> Result<u64> {
        let mut bytes = [0; 8];
        let at = offset.checked_add(at as u64).ok_or(Error::BadArgument)?;
        window.read(at, &mut bytes).ok_or(Error::BadArgument)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let kind = word(core::mem::offset_of!(ReportText, kind))?;
    let kind = ReportKind::from_number(kind).ok_or(Error::BadArgument)?;
    let value = word(core::mem::offset_of!(ReportText, value))?;
    let name_len = word(core::mem::offset_of!(ReportText, name_len))?;
    let detail_len = word(core::mem::offset_of!(ReportText, detail_len))?;
    if name_len > MAX_REPORT_NAME as u64 || detail_len > MAX_REPORT_DETAIL as u64 {
        return Err(Error::TooLarge);
    }
    let mut name = [0; MAX_REPORT_NAME];
    let mut detail = [0; MAX_REPORT_DETAIL];
    let name = &mut name[..name_len as usize];
    let detail = &mut detail[..detail_len as usize];
    for (at, into) in [
        (core::mem::offset_of!(ReportText, name), &mut *name),
        (core::mem::offset_of!(ReportText, detail), &mut *detail),
    ] {
        let at = offset.checked_add(at as u64).ok_or(Error::BadArgument)?;
        window.read(at, into).ok_or(Error::BadArgument)?;
    }
    let (name, detail) = (printable(name), printable(detail));
    name::of_program(name)?;
    let device = device()?;
    let mut budget = budget.try_lock(call)?;
    if !budget.has_some(device.now()?) {
        return Err(Error::Again);
    }
    device.report_of(call.badge, kind, value, name, detail)?;
    budget.spend((name.len() + detail.len()) as u32 + REPORT_COST);
    Ok(0)
}

fn end(call: &Call, which: u64) -> Result<u64> {
    let Client { lines, .. } = client(which)?;
    let device = device()?;
    for (page, line) in lines.iter().enumerate() {
        // A thread that has ended in the middle of a write is succeeded; its line ends where it was.
        if let Ok(mut line) = line.try_lock(call) {
            if line.is_inherited() {
                line.repair();
            }
            line.flush(|text, part| put(device, stream(which, page), text, part));
        }
    }
    Ok(0)
}
