//! The list of attacks: what each holds, what it must not achieve, and how that is seen.
//!
//! The program plays exactly these; the driver has a test for each; each row of the book's table of
//! authority names some of them.
//!
//! # How the list is made
//!
//! Authority is a graph: components are its nodes, capabilities its edges, and an operation is the only way
//! to a new edge. So for each type of capability the edges that an attacker may be given are gone through, and
//! for each edge what it could be taken for:
//!
//! | an attacker has | tries | attacks |
//! |---|---|---|
//! | an edge without a right | the operation; every copy, and copies of copies | `*_rights_not_held` |
//! | an edge to what is not there any more | every operation, once the frame is something else | `*_stale_after_retype` |
//! | an edge that was lent | every operation on it, on copies, and on what was made of it, once it is taken back | `*_revoked_by_guard` |
//! | an edge, but not one that an operation wants beside it | the operation with none, one of another type, one that lacks a right, one with a guard | `*_arguments_without_authority` |
//! | an edge to a part | what is beside the part, by numbers that wrap, too | `*_beyond_*`, `*_of_others` |
//! | an edge to a thread that is in somebody else's component | everything that changes, reads or moves it | `thread_*_in_service` |
//! | an edge that others rely on | to change it while they look | `race_*` |
//! | an edge that it had | to use what a CPU remembers of it: code, translations | `code_*`, `translation_*` |
//! | an edge that is busy | to try again without a pause, on two nodes | `again_*` |
//! | an edge to what clients share | to use all of it up | `service_stacks_*`, `time_child_*` |
//!
//! Nothing else is given to an attacker but a thread that may yield and end, endpoints of its own, the time, and
//! the right to invoke the victim's service.
#![no_std]
#![forbid(unsafe_code)]

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// What it tries: `Type.Operation`, or `Type.*`, separated by spaces.
    pub tries: &'static str,
    /// The capabilities it holds beside those that every attacker has.
    pub holds: &'static str,
    /// What it must not achieve.
    pub must_not: &'static str,
    /// How that is seen.
    pub seen: &'static str,
}

impl Attack {
    /// Whether the tier `quick` plays it.
    pub fn is_quick(&self) -> bool {
        let is = |a: &&Attack| a.name == self.name;
        in_time::QUICK.contains(&self.name) || !in_time::ATTACKS.iter().any(|a| is(&a))
    }

    /// Whether it tries an operation of a type.
    pub fn tries(&self, ty: &str, operation: &str) -> bool {
        self.tries.split(' ').any(|t| {
            t.split_once('.')
                .is_some_and(|(of, o)| of == ty && (o == operation || o == "*"))
        })
    }
}

macro_rules! attacks {
    ($($name:literal: $tries:literal, $holds:literal, $must_not:literal, $seen:literal;)*) => {
        &[$(Attack {
            name: $name,
            tries: $tries,
            holds: $holds,
            must_not: $must_not,
            seen: $seen,
        }),*]
    };
}

mod in_time;

/// An attack for each of the types named: on rights, versions, guards or arguments.
macro_rules! of_types {
    ($suffix:literal, $holds:literal, $must_not:literal, $seen:literal, $($name:literal $ty:literal),+) => {
        &[$(Attack {
            name: concat!($name, $suffix),
            tries: concat!($ty, ".* Captbl.CopyIn"),
            holds: concat!($ty, ": ", $holds),
            must_not: $must_not,
            seen: $seen,
        }),+]
    };
}

const RIGHTS: &[Attack] = of_types!(
    "_rights_not_held",
    "without any right, and with all; its own table, to copy into",
    "carry out an operation whose right is missing, or get a right back by a copy",
    "each call is refused with Denied; the victim goes on",
    "captbl" "Captbl", "page_table" "PageTable", "space" "Space", "component" "Component",
    "thread" "Thread", "sinv" "Sinv", "send" "Send", "receive" "Receive", "memory" "Memory",
    "frame" "Frame", "time" "Time", "hardware" "Hardware", "liveness" "Liveness",
    "thread_ids" "ThreadIds"
);

const STALE: &[Attack] = of_types!(
    "_stale_after_retype",
    "with all rights, of an object whose frame has become another object of the same kind, the victim's",
    "reach the new object by the old capability, or copy it",
    "each call is refused with Revoked; the victim's capability is as it was",
    "captbl" "Captbl", "page_table" "PageTable", "space" "Space", "component" "Component",
    "thread" "Thread", "sinv" "Sinv", "send" "Send", "receive" "Receive", "frame" "Frame",
    "time" "Time", "liveness" "Liveness"
);

const REVOKED: &[Attack] = of_types!(
    "_revoked_by_guard",
    "with all rights and a guard; its own table, to copy into",
    "keep the capability, a copy of it, or what an operation has made of it, once the guard is revoked",
    "each call on each of them is refused with Revoked",
    "captbl" "Captbl", "page_table" "PageTable", "space" "Space", "component" "Component",
    "thread" "Thread", "sinv" "Sinv", "send" "Send", "receive" "Receive", "memory" "Memory",
    "frame" "Frame", "time" "Time", "hardware" "Hardware", "liveness" "Liveness",
    "thread_ids" "ThreadIds"
);

const ARGUMENTS: &[Attack] = of_types!(
    "_arguments_without_authority",
    "with all rights; of each type one capability with all rights, and one with a guard",
    "carry out an operation with an argument that is no capability, one of another type, one that lacks a right, or one with a guard where none may be",
    "each call is refused with NoCap, WrongCap or Denied, for every row of the table in dyad_abi::cap::authority",
    "captbl" "Captbl", "space" "Space", "component" "Component", "thread" "Thread",
    "receive" "Receive", "memory" "Memory", "time" "Time", "hardware" "Hardware"
);

const OTHERS: &[Attack] = attacks! {
    "captbl_cons_widens_a_leaf": "Captbl.Cons Captbl.Deactivate Captbl.CopyIn",
        "a leaf of the victim's table, with the right to copy it only; its own root, with all rights",
        "change the leaf's slots by the root into which it hangs it",
        "the leaf's slot is what it was, for the warden and for the victim";
    "captbl_copy_widens_rights": "Captbl.CopyIn",
        "of each type one capability with two rights; its own table",
        "get a copy with more rights than its source",
        "introspection of copies and of copies of copies";
    "captbl_narrowing_escaped": "Captbl.CopyIn ThreadIds.Use",
        "of each type one capability with all rights; its own table",
        "get a copy for more than its source is for, by numbers that wrap, too",
        "each call is refused with BadArgument";
    "captbl_slots_beyond_the_table": "Captbl.Deactivate Captbl.Read Captbl.CopyIn Captbl.Cons Captbl.Decons",
        "its own root and a leaf, with all rights",
        "reach a slot or an entry that is not the node's, or mistake a leaf for a root",
        "each call is refused with BadArgument or NoCap";
    "captbl_overwrites_a_slot_of_the_victim": "Captbl.CopyIn Captbl.Activate Captbl.Deactivate Receive.MakeSend",
        "the victim's first leaf, with CopyIn, Activate and Read",
        "replace a capability of the victim",
        "the victim introspects its slots all the time";
    "captbl_reading_a_table_is_no_use_of_it": "Captbl.Read Captbl.Deactivate Captbl.CopyIn Captbl.Cons",
        "the victim's first leaf, with Read and COPY; its own root",
        "change the leaf, or hang it into its own root",
        "each call is refused with Denied; the victim's slots";
    "captbl_leaf_given_up_while_it_hangs": "Memory.RetypeUntyped Memory.RetypeUser Memory.RetypeKernel",
        "the memory of a leaf that hangs in its own table",
        "make user memory of slots that are looked up",
        "each call is refused with Exists";
    "memory_frames_beyond_the_range": "Memory.RetypeKernel Memory.RetypeUntyped Memory.Split Memory.Merge Memory.Inspect Memory.RetypeUser Memory.Activate Memory.Count",
        "eight frames, with all rights",
        "reach a frame beyond them, by an offset or by a block that ends elsewhere",
        "each call is refused with BadArgument";
    "memory_block_across_two_owners": "Memory.RetypeUser Memory.Merge Memory.RetypeUntyped",
        "eight frames of a block of more, with all rights",
        "merge its half with the other one, or retype both",
        "the warden counts the other half";
    "memory_given_up_while_it_is_mapped": "Memory.RetypeUntyped Memory.RetypeKernel Space.Map",
        "a frame, its memory and its own space",
        "make a kernel object of a frame that it may write to",
        "each call is refused with Exists; the page keeps its contents";
    "memory_contents_of_others": "Memory.RetypeUser Memory.Activate Space.Map",
        "memory that was somebody else's and full of secrets; its own space",
        "read what was there",
        "all words are zero";
    "frame_written_through_a_read_only_capability": "Frame.Map Frame.Write Frame.Execute Space.Map Space.Protect Space.Exchange",
        "the page that the victim shows, with Map and COPY; its own space",
        "map it writable or executable, or make it so later",
        "each call is refused; the victim looks at the page all the time";
    "frame_pages_beyond_the_block": "Space.Map Frame.Map",
        "four pages of a block of eight; its own space",
        "map a page beyond the four, or two mebibytes of them",
        "each call is refused with BadArgument";
    "frame_large_page_out_of_line": "Space.Map Frame.Map",
        "a block of four mebibytes without its first page; its own space",
        "map a large page that begins before its first page",
        "each call is refused with BadArgument; the one in line is mapped";
    "space_addresses_of_the_kernel": "Space.Map Space.Unmap Space.Protect Space.Harvest Space.Translate Space.Reclaim Space.Evacuate Space.Exchange Space.AddRegion Space.Unlink",
        "its own space, a frame, memory, with all rights",
        "reach the kernel's half, or wrap around to it",
        "each call is refused with BadAddress or BadArgument";
    "space_exchange_of_read_only_memory": "Space.Exchange",
        "its own space",
        "change its text, or the page that the victim shows",
        "each call is refused with BadAddress; text and page are what they were";
    "space_of_the_victim": "Space.*",
        "the victim's space with Translate only; memory of its own",
        "change anything of it",
        "each call is refused with Denied; the victim goes on";
    "space_supply_without_authority": "Space.Supply Space.Evacuate",
        "its own space; memory, and copies of it that each lack one right",
        "have faults, or Evacuate, use memory beyond its authority",
        "each call is refused with Denied, BadArgument or NoSuchNode";
    "space_evacuates_pages_of_others": "Space.Evacuate Space.Reclaim",
        "its own space, and the memory of pages that the warden has mapped there",
        "have pages moved or given back that no fault has put there",
        "nothing is done to them, and they stay mapped";
    "space_regions_overlap": "Space.AddRegion Space.RemoveRegion",
        "its own space",
        "declare a region over another one, around the end of addresses, or of a kind that is none",
        "each call is refused with Exists, BadArgument or NoSuchNode";
    "space_links_tables_of_others": "Space.Link PageTable.Link",
        "its own space, a table of its own, and one that hangs in the victim's space",
        "hang a table where it was not made for, or one that hangs elsewhere",
        "each call is refused";
    "space_forged_tickets": "Space.Shootdown",
        "its own space",
        "learn anything by a ticket that it was not given",
        "the answers are 0, 1 or an error";
    "space_pages_of_others_by_address": "Thread.Configure Thread.Resume",
        "a second thread of its own, which ends with each attempt",
        "read or write by an address what is not its component's",
        "the thread faults each time";
    "component_fault_handler_redirected": "Component.SetFaultHandler",
        "the victim's component with SetHome only; its own; an entry with and without Invoke",
        "say where the victim's faults go, or name an entry that it may not invoke",
        "each call is refused with Denied or WrongCap";
    "component_entry_forged": "Component.MakeSinv Captbl.CopyIn",
        "the victim's component with SetHome only, and the entry to its service",
        "make an entry to the victim, or change the badge of the one it has by a copy",
        "each call is refused; the service knows every badge that comes";
    "component_entry_in_the_kernel": "Component.MakeSinv",
        "its own component",
        "make an entry at an address that is not a program's",
        "each call is refused with BadAddress";
    "component_made_of_parts_of_others": "Component.Configure",
        "a component of its own; the victim's table and space without COPY",
        "make a component of them",
        "each call is refused with Denied, BadArgument or WrongCap";
    "component_home_of_nobody": "Component.SetHome",
        "its own component; the victim's with Configure only",
        "name nodes that are none, or move the victim",
        "each call is refused with NoSuchNode or Denied";
    "component_victims_service_as_fault_handler": "Component.SetFaultHandler Sinv.Invoke",
        "its own component and a second thread; the entry to the victim's service",
        "get an answer for the owner by a fault at an address that is one of the service's words",
        "the service knows every badge that comes; the secret is not in the answer";
    "component_thread_begins_in_the_victim": "Thread.Configure Component.Configure",
        "a thread; the victim's component with all rights but Configure and SetHome",
        "begin at chosen code in the victim",
        "each call is refused with Denied; the gadget leaves no trace in the victim";
    "component_fault_in_its_fault_handler": "Component.SetFaultHandler Thread.Exit",
        "its own component and entry, and a second thread",
        "keep the CPU, or end anything but its thread, by a handler that faults, has it try again and again, or ends",
        "the thread ends each time; the victim goes on";
    "send_bits_beyond_the_badge": "Send.Send Captbl.CopyIn",
        "a sending end to the victim with one bit",
        "send another bit, by arguments or by a copy",
        "the victim knows which bits may come";
    "receive_lines_of_others": "Receive.Receive Receive.MakeSend Receive.Bind Captbl.CopyIn",
        "four lines of the victim's endpoints, with all rights",
        "take, send to or bind the other lines, by numbers that wrap, too",
        "each call is refused with BadArgument";
    "receive_sending_end_without_the_right": "Receive.MakeSend Receive.Bind",
        "four lines of the victim's endpoints, with Receive only",
        "make a sending end, or bind a line",
        "each call is refused with Denied";
    "receive_bound_to_a_cpu_that_is_not": "Receive.Bind Receive.MakeSend",
        "four lines of the victim's endpoints, with all rights",
        "bind a line to a node or a CPU that is none, or make a sending end without bits",
        "each call is refused with NoSuchNode or BadArgument";
    "hardware_of_another_node": "Hardware.FlushStep Hardware.FlushTlb Hardware.AttachIrq Hardware.Write Hardware.Report Hardware.Shutdown Hardware.StartCpu Hardware.Now Hardware.Quiesced Hardware.Where Hardware.NodeState Hardware.Count",
        "the hardware of the last node, with what acts on the caller's",
        "act on the node that it runs on by it, or do anything else",
        "each call is refused with NotReady or Denied";
    "hardware_inside_of_others": "Hardware.Inside",
        "its node's hardware with Inside",
        "end threads of others, or learn more of an invocation than whether it is over",
        "values are 0 or 1, tokens that no invocation has are refused; the victim goes on";
    "hardware_pointers_into_the_kernel": "Hardware.Write Hardware.Report",
        "its node's hardware with Write and Report",
        "have the kernel read its own memory, or what is not mapped",
        "each call is refused with BadAddress or TooLarge";
    "hardware_cpu_given_to_a_thread_without_authority": "Hardware.StartCpu",
        "its node's hardware with StartCpu; the victim's thread with all rights but Resume",
        "give a CPU to a thread that it may not resume, or one that is not there",
        "each call is refused with Denied, WrongCap or BadArgument";
    "hardware_interrupts_with_a_guarded_end": "Hardware.AttachIrq",
        "its node's hardware with AttachIrq; a sending end, with and without a guard",
        "have interrupts sent by a capability that can be taken back without notice",
        "each call is refused with Denied, WrongCap or BadArgument";
    "liveness_entries_of_others": "Liveness.Revoke",
        "entries 8 to 15 of a frame whose entry 0 guards a capability of the victim",
        "revoke another entry, by numbers that wrap, too",
        "the victim introspects the guarded capability all the time";
    "liveness_guard_taken_off": "Liveness.Guard Captbl.CopyIn",
        "a guarded capability; entries 8 to 15, with and without Guard; its own table",
        "replace the guard, or use an entry that is not its own",
        "each call is refused; the copies die with the guard";
    "thread_id_of_another_thread": "Thread.Configure ThreadIds.Use Captbl.CopyIn",
        "a second thread, its own component, a scheduler, the ids of its own threads",
        "give the thread the id of init's, a worker's, the victim's or its own first thread",
        "each call is refused";
    "thread_events_at_lines_of_others": "Thread.Configure Receive.Bind",
        "a second thread, its own component, line 63 of the victim's endpoints with Bind",
        "have the kernel send an event to another line of the victim's",
        "the call is refused; the victim knows what may come to its line";
    "thread_operations_of_the_thread_itself": "Thread.Migrate Thread.Jump Thread.Load Thread.Yield Thread.Exit Thread.Stop",
        "the victim's thread with Migrate, Jump, Load, Yield and Exit",
        "make the victim's thread do one of them",
        "each call is refused with Denied; the victim goes on";
    "thread_registers_of_the_kernel": "Thread.WriteRegister Thread.ReadRegister Thread.Unload Thread.Resume",
        "a second thread with all rights, its own component",
        "give a thread flags or addresses that are not a program's, or name a register that is none",
        "the registers read back; the thread goes on, or faults";
    "thread_registers_written_to_memory_of_others": "Thread.Unload",
        "a second thread with all rights, stopped",
        "have its registers written where it may not write",
        "each call is refused with BadAddress; the victim looks at its page";
    "thread_goes_on_in_the_kernel": "Thread.Jump Thread.Load Thread.Migrate",
        "its own thread with Jump, Load and Migrate",
        "go on at an address that is not a program's, on a node that is none, or with registers from memory that is not its own",
        "each call is refused";
    "thread_priority_above_the_dispatchers": "Thread.Dispatch Send.Send Receive.Receive",
        "a second thread that it schedules itself; the victim sends to its endpoint",
        "run in the victim's slices, by a priority above its own",
        "the victim counts how often it has run before a send is over";
    "thread_returns_without_an_invocation": "Sinv.Invoke Thread.Configure",
        "a second thread",
        "return where there is nothing to return to",
        "the thread goes on behind it, or faults; the victim goes on";
    "thread_flags_carried_into_the_service": "Thread.Load Sinv.Invoke",
        "a second thread with Load",
        "have the service run with its direction, trap or alignment flag",
        "the service copies memory and compares";
    "thread_configured_while_it_runs": "Thread.Configure Thread.WriteRegister Thread.Unload",
        "a second thread that runs",
        "change or read it meanwhile",
        "each call is refused with NotReady";
    "thread_write_register_in_service": "Thread.WriteRegister Thread.Stop Thread.Resume",
        "a second thread with all rights, which is in the victim's service nearly all the time",
        "have it go on at chosen code in the service",
        "a gadget's trace in the victim; how often the thread was stopped in the service";
    "thread_read_register_in_service": "Thread.ReadRegister Thread.Stop Thread.Resume",
        "a second thread with all rights, which is in the victim's service nearly all the time",
        "read what the service has in registers",
        "a stack pointer of the service";
    "thread_read_register_after_a_crossed_service": "Thread.ReadRegister Thread.Stop Thread.Resume",
        "a second thread on another node with all rights, which invokes the victim's service on this one",
        "read what the service has left in registers of this node's ISA, when the thread is back on its own",
        "a stack pointer of the service";
    "thread_unload_in_service": "Thread.Unload Thread.Stop Thread.Resume",
        "a second thread with all rights, which is in the victim's service nearly all the time",
        "read what the service has in registers",
        "a stack pointer of the service";
    "thread_moved_out_of_the_services_home": "Thread.Resume Component.SetHome",
        "a second thread in a service whose home is one node",
        "have the service go on on another node",
        "the service asks where it runs";
    "thread_made_root_of_another_node_in_service": "Hardware.StartCpu Thread.Resume",
        "a second thread in a service; the hardware of the last node with StartCpu; nothing of it is at home there",
        "have the thread go on there, in the service or in its own component",
        "the thread goes on; the service and the thread ask where they run";
    "service_stacks_of_two_threads": "Sinv.Invoke",
        "two more threads, all in the service at once",
        "have two threads on one stack of the service",
        "the service marks its stack and looks at it all the time; the tokens";
    "sinv_badge_forged": "Sinv.Invoke",
        "the entry to the victim's service, with another badge than the owner's",
        "get the owner's answer, by words, by numbers beside the index, or by other operations",
        "the service's answer; every badge that comes";
    "sinv_recursion_without_end": "Sinv.Invoke",
        "its own entry, and that of the victim's service",
        "get deeper than there is room, or a wrong answer from the service on the way",
        "the depth, and every answer";
    "time_budget_without_end": "Thread.Dispatch Time.Use Time.Transfer Time.Read",
        "two budgets of 2 ms, a second thread that it schedules itself",
        "run longer than both, by giving away what it is running on",
        "the time that passes for the thread while it looks at the clock";
    "time_made_of_nothing": "Time.Transfer Time.Read",
        "two budgets of 2 ms",
        "have more than 4 ms, by numbers that wrap, too",
        "the sum of both";
    "time_of_others": "Time.Transfer Time.Read Captbl.CopyIn",
        "two empty budgets beside the victim's, in one frame; the victim's without any right",
        "take from the victim's",
        "the warden reads the victim's";
    "race_retype_against_map": "Memory.RetypeUser Memory.RetypeUntyped Memory.RetypeKernel Memory.Activate Space.Map Space.Unmap",
        "memory, its own space and table, two more threads",
        "have a frame mapped that is something else",
        "what it writes is what it reads; the audit of all tables at the end of the run";
    "race_stop_write_resume": "Thread.Stop Thread.WriteRegister Thread.Resume",
        "two threads that strike at a third one, which is in the service nearly all the time",
        "change its registers between a check and its use",
        "a gadget's trace in the victim";
    "race_cons_against_lookup": "Captbl.Cons Captbl.Decons",
        "its own root, a leaf, a second thread that hangs it in and out",
        "find anything but what is in the leaf",
        "introspection by the index";
    "race_copy_against_revoke": "Liveness.Revoke Captbl.CopyIn",
        "a liveness frame, a second thread that revokes what is being copied",
        "have a copy that outlives its guard",
        "every copy is dead once the revocation is over";
    "race_shootdowns_against_crossed_invocations": "Space.Shootdown Sinv.Invoke",
        "its own space with Shootdown, two more threads, one of them on the other node",
        "have the victim's calls of a service on another node fail",
        "the victim makes such calls all the time";
};

const COUNT: usize = RIGHTS.len()
    + STALE.len()
    + REVOKED.len()
    + ARGUMENTS.len()
    + OTHERS.len()
    + in_time::ATTACKS.len();

const ALL: [Attack; COUNT] = {
    let mut all = [OTHERS[0]; COUNT];
    let lists = [RIGHTS, STALE, REVOKED, ARGUMENTS, OTHERS, in_time::ATTACKS];
    let (mut list, mut i, mut n) = (0, 0, 0);
    while list < lists.len() {
        if i == lists[list].len() {
            (list, i) = (list + 1, 0);
        } else {
            all[n] = lists[list][i];
            (i, n) = (i + 1, n + 1);
        }
    }
    all
};

/// All attacks.
pub const ATTACKS: &[Attack] = &ALL;

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use dyad_abi::cap::CapType;
    use dyad_abi::cap::authority;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_different_and_there_are_enough() {
        let names: BTreeSet<&str> = ATTACKS.iter().map(|a| a.name).collect();
        assert_eq!(names.len(), ATTACKS.len());
        assert!(ATTACKS.len() >= 40);
    }

    #[test]
    fn most_attacks_in_time_are_not_quick() {
        let quick = ATTACKS.iter().filter(|a| a.is_quick()).count();
        let in_time = in_time::ATTACKS.len();
        assert_eq!(quick, ATTACKS.len() - in_time + in_time::QUICK.len());
        let known = |name| ATTACKS.iter().any(|a| a.name == name);
        assert!(in_time::QUICK.into_iter().all(known));
    }

    #[test]
    fn operations_that_are_tried_exist() {
        for a in ATTACKS {
            for tried in a.tries.split(' ') {
                let (ty, operation) = tried.split_once('.').expect("Type.Operation");
                let ty = CapType::ALL.iter().find(|t| t.name() == ty).expect(tried);
                let known = authority::of(*ty).any(|o| o.name == operation);
                assert!(operation == "*" || known, "{}: {tried}", a.name);
            }
        }
    }

    #[test]
    fn every_operation_is_tried() {
        for row in authority::all() {
            let tried = ATTACKS.iter().any(|a| a.tries(row.ty.name(), row.name));
            assert!(tried, "nobody tries {}.{}", row.ty.name(), row.name);
        }
    }
}
