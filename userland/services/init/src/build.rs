//! How a program is built: image, info page, supplies, and what every program gets.

#![allow(unsafe_code)]

use core::mem::offset_of;
use core::ptr::with_exposed_provenance;

use dyad_abi::bundle::Bundle;
use dyad_abi::cap::{HardwareOp, ObjectKind, ReceiveOp, Rights};
use dyad_abi::service::peer::Kernels;
use dyad_abi::service::{
    ARCHIVE_BASE, GUESTS, Grant, INFO_BASE, INIT_THREADS, INPUT_BASE, Info, MAX_INPUT, SERVED,
    SERVED_BY_INIT, Served, archive, program, slot,
};
use dyad_abi::user::{MAX_PROGRAM_THREADS, PAGE_SIZE};
use dyad_abi::{CpuId, Error, Isa, NodeId};
use dyad_services::image::zero_pages;
use dyad_services::rt;
use dyad_sys::cap::{Cap, Receive};

use crate::memory::{Store, TABLE};
use crate::program::{HOME, Needs, Placement, Program, Window};
use crate::system::PROGRAM_ITEM;
use crate::trouble::{Done, During, Trouble};

/// Frames of a service's supply on a node for its own pages: zeros of its image, stacks, and page tables, which are no
/// more than [`TABLES`]. Those for the stacks of its clients' invocations are beside them.
pub const SERVICE_SUPPLY: u64 = 256;
const TABLES: u64 = 48;
/// Frames of a node's pool that are given to no program.
pub const SPARE: u64 = 32;

const NEEDS: Needs = Needs {
    objects: 256,
    pages: 64,
    leaves: 3,
};
const SCHED_NEEDS: Needs = Needs {
    leaves: dyad_abi::service::sched::LEAVES,
    ..NEEDS
};
/// Of a program that is no service: threads, their control blocks, the buffer of the console.
pub const GUEST_NEEDS: Needs = Needs {
    objects: 256 + 3 * MAX_PROGRAM_THREADS,
    pages: 64 + 3 * MAX_PROGRAM_THREADS,
    leaves: 3,
};

/// The archive, and a bundle of it.
#[derive(Clone, Copy)]
pub struct Item {
    /// Its name.
    pub name: &'static str,
    /// What it is made of.
    pub bundle: Bundle<'static>,
}

/// The archive.
#[derive(Clone, Copy)]
pub struct Archive(&'static [u8]);

impl Archive {
    /// What the kernel has mapped.
    fn mapped(info: &Info) -> Archive {
        let len = usize::try_from(info.archive_len).unwrap_or(0);
        let start = with_exposed_provenance(ARCHIVE_BASE as usize);
        // SAFETY: 1. The kernel has mapped the archive there, read-only, all of it. 2. It does not
        // change.
        Archive(unsafe { core::slice::from_raw_parts(start, len) })
    }

    fn item(name: &'static str, bytes: &'static [u8]) -> Done<Item> {
        match Bundle::parse(bytes) {
            Ok(bundle) => Ok(Item { name, bundle }),
            Err(_) => Err(Error::BadBundle)
                .during("archive")
                .map_err(|t| t.of(name)),
        }
    }

    /// The bundle with this name.
    pub fn find(self, name: &'static str) -> Done<Item> {
        match archive::find(self.0, name) {
            Some(bytes) => Archive::item(name, bytes),
            None => Err(Error::NotFound)
                .during("archive")
                .map_err(|t| t.of(name)),
        }
    }

    /// The standard input of the run's program; init looks at its length only.
    pub fn input(self) -> Done<&'static [u8]> {
        match archive::find(self.0, archive::INPUT) {
            Some(input) if input.len() as u64 > MAX_INPUT => {
                Err(Error::TooLarge).during("the standard input")
            }
            input => Ok(input.unwrap_or_default()),
        }
    }

    /// Whether there is a bundle at this place.
    pub fn has(self, n: usize) -> bool {
        archive::bundles(self.0).is_some_and(|mut all| all.nth(n).is_some())
    }

    /// The bundle at this place.
    pub fn at(self, n: usize) -> Done<Item> {
        match archive::bundles(self.0).and_then(|mut all| all.nth(n)) {
            Some((name, bytes)) => Archive::item(name, bytes),
            None => Err(Error::NotFound).during("archive: the program"),
        }
    }
}

/// The name of the program with a number, as the archive has it.
pub fn name_of(number: u64) -> &'static str {
    let Some(n) = number.checked_sub(program::FIRST) else {
        return program::name(number);
    };
    let archive = rt::info().map(Archive::mapped).ok();
    let item = archive.and_then(|a| a.at(PROGRAM_ITEM + n as usize).ok());
    item.map_or("no program", |item| item.name)
}

/// What is needed at every step of building.
pub struct Builder {
    /// What init was started with.
    pub info: &'static Info,
    /// The archive.
    pub archive: Archive,
    /// Memory.
    pub store: Store,
    /// Init itself.
    pub window: Window,
    /// ISAs of the system, by bit.
    pub isas: u8,
}

impl Builder {
    /// Takes stock of what the kernel has made.
    pub fn new() -> Done<Builder> {
        let info = rt::info().during("info page")?;
        let here = rt::hardware(HOME).where_am_i().during("where init is")?;
        let archive = Archive::mapped(info);
        let isas = info.system.nodes[..info.system.node_count as usize]
            .iter()
            .filter_map(|node| Isa::from_index(node.isa.into()))
            .fold(0, |bits, isa| bits | 1 << isa.index());
        let mut store = Store::new().during("taking stock")?;
        let parts = (TABLE, Cap::at(slot::SPACE), Cap::at(slot::COMPONENT));
        let me = archive.find("init")?;
        let own = Program::existing(&mut store, parts, &me.bundle, &NEEDS, isas)?;
        Ok(Builder {
            info,
            archive,
            store,
            window: Window::new(own, here.isa)?,
            isas,
        })
    }

    /// The nodes.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        NodeId::first(self.info.system.node_count as usize)
    }

    /// Whether the kernels only exchange messages.
    pub const fn is_multiple(&self) -> bool {
        self.info.kernels == Kernels::Multiple as u64
    }

    /// The CPUs of a node.
    pub fn cpus(&self) -> impl Iterator<Item = CpuId> + Clone + use<> {
        CpuId::first(self.info.cpus as usize)
    }

    /// A service: small supplies, and some rights to the hardware beyond those that everybody has.
    pub fn service(
        &mut self,
        number: u64,
        name: &'static str,
        rights: impl Fn(NodeId) -> Rights,
    ) -> Done<Program> {
        let item = self.archive.find(name)?;
        let needs = match number {
            program::SCHED => &SCHED_NEEDS,
            _ => &NEEDS,
        };
        if zero_pages(&item.bundle) + TABLES > SERVICE_SUPPLY {
            let small = Err(Error::NoMemory).during("frames of the service itself");
            return small.map_err(|t: Trouble| t.of(name));
        }
        let reserved = match item.bundle.invoked() {
            Some(_) => self.reserved(SERVED),
            None => 0,
        };
        // Its clients come to it, and it spends nothing elsewhere.
        let only = match number {
            program::CONSOLE => NodeId::new(self.info.console_node),
            _ => None,
        };
        let supply = |node: NodeId| match only {
            Some(home) if home != node => SERVICE_SUPPLY,
            _ => SERVICE_SUPPLY + reserved,
        };
        let given = Given::default();
        let mut service = self
            .any(
                (number, needs),
                &item,
                (given, self.everywhere()),
                Some(&supply),
                rights,
            )
            .map_err(|t| t.of(name))?;
        service.unreserved = reserved;
        Ok(service)
    }

    /// Frames that the stacks of invocations by init and by all programs of the run can take.
    fn reserved(&self, served: Served) -> u64 {
        let own = served.frames(INIT_THREADS);
        if self.is_multiple() {
            // Processes, and the actors of their peers.
            return own + self.nodes().count() as u64 * (own + served.frames(MAX_PROGRAM_THREADS));
        }
        let guests = (0..GUESTS as usize).filter(|n| self.archive.has(PROGRAM_ITEM + n));
        own + guests.count() as u64 * served.frames(MAX_PROGRAM_THREADS)
    }

    /// Adds frames for the stacks of invocations to init's own supplies, which are the kernel's choice.
    pub fn supply_own(&mut self) -> Done<()> {
        const RUN: u64 = 1;
        let frames = self.reserved(SERVED_BY_INIT);
        for node in self.nodes() {
            let arena = self.store.carve(node.index(), frames).during("supply")?;
            let memory = self.store.supply(node.index(), &arena).during("supply")?;
            let own = &mut self.window.own;
            own.space
                .supply_run(node, RUN, Some((memory, 0, frames)))
                .during("supply")?;
        }
        self.window.own.unreserved = frames;
        Ok(())
    }

    /// A program that is no service: it has arguments, and frames for every node, so many of its pool or,
    /// if it is not said how many, what the block allocator hands out. Only the first one gets what the run's program is granted.
    pub fn program(&mut self, number: u64, item: &Item, supply: Option<u64>) -> Done<Program> {
        let info = self.info;
        let (args, env) = dyad_sys::texts(info);
        let hardware = match Grant::from_number(info.grant) {
            Some(Grant::All) if number == program::FIRST => Rights::ALL,
            _ => Rights::NONE,
        };
        let input = match number {
            program::FIRST => self.archive.input().map_err(|t| t.of(item.name))?,
            _ => &[],
        };
        let needs = Needs {
            pages: GUEST_NEEDS.pages + (input.len() as u64).div_ceil(PAGE_SIZE),
            ..GUEST_NEEDS
        };
        let given = Given {
            args,
            env,
            input,
            process: false,
        };
        let frames = supply.unwrap_or(0);
        let fixed = |_: NodeId| frames;
        let supply: Option<&dyn Fn(NodeId) -> u64> = match supply {
            Some(_) => Some(&fixed),
            None => None,
        };
        self.any(
            (number, &needs),
            item,
            (given, self.everywhere()),
            supply,
            |_| hardware,
        )
        .map_err(|t| t.of(item.name))
    }

    /// Where all programs are but those of a group.
    pub const fn everywhere(&self) -> Placement {
        Placement {
            home: HOME,
            isas: self.isas,
        }
    }

    /// A program: image, info page, what it may read, capabilities of the hardware, supplies. What a group shares of its
    /// image is left out for processes of one.
    pub fn any(
        &mut self,
        (number, needs): (u64, &Needs),
        item: &Item,
        (given, place): (Given<'_>, Placement),
        supply: Option<&dyn Fn(NodeId) -> u64>,
        rights: impl Fn(NodeId) -> Rights,
    ) -> Done<Program> {
        let nodes = self.nodes();
        let (store, window) = (&mut self.store, &mut self.window);
        let mut p = Program::new(store, number, &item.bundle, needs, place)?;
        let is_process = given.process;
        p.load(store, window, &item.bundle, is_process)?;
        let info = self.info;
        p.page(store, window, INFO_BASE, false, |page| {
            write_info(page, info, given);
        })
        .during("info page")?;
        p.pages(store, window, INPUT_BASE, given.input)
            .during("the standard input")?;
        let common = HardwareOp::Now
            .right()
            .or(HardwareOp::Where.right())
            .or(HardwareOp::NodeState.right())
            .or(HardwareOp::Count.right());
        for node in nodes {
            let rights = common.or(rights(node));
            p.give(slot::hardware(node), rt::hardware(node), rights)?;
            if let Some(frames) = supply
                && frames(node) > 0
            {
                store
                    .carve(node.index(), frames(node))
                    .and_then(|arena| p.supply(store, node, arena))
                    .during("supply")?;
            }
        }
        if supply.is_none() && !is_process {
            self.provide(&mut p)?;
        }
        Ok(p)
    }

    /// Endpoints of a program, at which it may receive.
    pub fn endpoints(&mut self, p: &mut Program) -> Done<Cap<Receive>> {
        let endpoints = self
            .store
            .object(&mut p.objects, ObjectKind::Endpoints)
            .during("endpoints")?;
        let rights = match Grant::from_number(self.info.grant) {
            Some(Grant::All) if p.number == program::FIRST => Rights::ALL,
            _ => ReceiveOp::Receive.right(),
        };
        p.give(slot::ENDPOINT, endpoints, rights)?;
        Ok(endpoints)
    }
}

/// What a program is given to read.
#[derive(Clone, Copy, Default)]
pub struct Given<'a> {
    /// Arguments.
    pub args: &'a str,
    /// Environment.
    pub env: &'a str,
    /// Standard input.
    pub input: &'a [u8],
    /// Whether the program is a process of a group.
    pub process: bool,
}

/// Fills the info page of a program: as init's, but for the archive, and what it is given to read.
fn write_info(page: &mut [u8; 4096], info: &Info, given: Given<'_>) {
    // SAFETY: 1. `Info` is a structure of integers without padding, as its size says. 2. The
    // reference lives longer than the slice.
    let bytes =
        unsafe { core::slice::from_raw_parts((&raw const *info).cast::<u8>(), size_of::<Info>()) };
    page[..bytes.len()].copy_from_slice(bytes);
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(offset_of!(Info, archive_len), &[0; 8]);
    put(offset_of!(Info, args), &[0; dyad_abi::service::MAX_ARGS]);
    let Given {
        args, env, input, ..
    } = given;
    put(offset_of!(Info, args), args.as_bytes());
    put(offset_of!(Info, args) + args.len(), env.as_bytes());
    for (at, len) in [
        (offset_of!(Info, args_len), args.len()),
        (offset_of!(Info, env_len), env.len()),
        (offset_of!(Info, input_len), input.len()),
    ] {
        put(at, &(len as u64).to_le_bytes());
    }
}

const _: () = assert!(
    size_of::<Info>()
        == offset_of!(Info, system)
            + size_of::<dyad_abi::user::SysInfo>()
            + dyad_abi::service::MAX_ARGS
        && offset_of!(Info, system) == 17 * 8
);
