//! Attacks that repeat, exhaust, or cross nodes in time: what one attempt does not show.

use crate::Attack;

/// Those of them that the tier `quick` plays.
pub const QUICK: [&str; 3] = [
    "code_of_the_former_owner_here",
    "code_rewritten_in_its_place",
    "service_stacks_of_many_ids",
];

pub const ATTACKS: &[Attack] = attacks! {
    "code_of_the_former_owner_here": "Space.Map Space.Unmap Memory.RetypeUser Memory.RetypeUntyped Memory.Activate Frame.Execute",
        "a frame, its memory, its own space and table",
        "run what was in the frame in an earlier life of it, as a loader that tries again on Again",
        "what the page's function returns";
    "code_of_the_former_owner_on_another_node": "Space.Map Space.Unmap Memory.RetypeUser Memory.RetypeUntyped Memory.Activate Frame.Execute",
        "a frame, its memory, its own space and table; a second thread, which runs on the last node",
        "have that node run what was in the frame in an earlier life of it",
        "what the page's function returns on each node";
    "code_rewritten_in_its_place": "Space.Protect Space.Map Frame.Write Frame.Execute",
        "a frame, its own space; a second thread, which runs on the last node",
        "run what was in the page before it was written again",
        "what the page's function returns on each node";
    "code_asked_for_without_a_pause": "Space.Protect Space.Map Memory.RetypeUser",
        "frames, its own space, two more threads, one of them on the last node, which ask for code all the time",
        "fill what nodes share with requests, or execute what is old on the way",
        "what the page's function returns; the victim makes calls to another node all the time";
    "code_request_that_finds_a_kernel_object": "Space.Protect Space.Unmap Memory.RetypeUntyped Memory.RetypeKernel Captbl.CopyIn Captbl.Read",
        "a frame that the other node has executed, its memory, its own space and table",
        "have a request for code come to a frame that is a leaf of a table by then",
        "the leaf's slots, again and again";
    "code_writable_and_executable": "Space.Map Space.Protect Frame.Write Frame.Execute",
        "a frame with all rights, its own space; a second thread on either node",
        "write to a page that may be executed, or execute one that may not",
        "each call is refused with BadArgument; the thread faults each time";
    "code_frame_given_up_while_another_node_runs_it": "Memory.RetypeUntyped Memory.RetypeKernel Space.Unmap Space.Translate",
        "a frame that is mapped executable for the other ISA only, its memory",
        "make something else of a frame that another node can run",
        "each call is refused with Exists";
    "translation_of_an_unmapped_page": "Space.Unmap Space.Shootdown Space.Map",
        "a frame, its own space; a second thread on either node",
        "read or write a page through a translation from before it was unmapped",
        "the thread faults each time";
    "translation_of_a_page_made_read_only": "Space.Protect Space.Shootdown Space.Map",
        "a frame, its own space; a second thread on either node",
        "write through a translation from before the page was made read-only",
        "the thread faults; the page's word";
    "translation_of_code_unmapped": "Space.Unmap Space.Shootdown Space.Map Frame.Execute",
        "a frame, its own space; a second thread on either node",
        "execute a page through a translation from before it was unmapped",
        "the thread faults each time";
    "translation_of_a_frame_with_another_owner": "Memory.RetypeUntyped Memory.RetypeUser Space.Unmap Space.Map",
        "a frame, its memory, its own space; a second thread on either node",
        "reach a frame in its next life by a translation from before, without any call that drops translations",
        "the thread faults each time; the frame's word in its next life";
    "translation_of_the_page_before": "Space.Unmap Space.Shootdown Space.Map",
        "two frames, its own space; a second thread on either node",
        "read one frame where the other one is by now",
        "the word that the thread reads";
    "again_retypes_on_two_nodes": "Memory.RetypeUser Memory.RetypeUntyped Memory.RetypeKernel Memory.Split Memory.Merge",
        "memory, two more threads, one of them on the last node",
        "have a frame be two things, or lost, or others held up",
        "typed errors; all frames come back; the victim makes calls to another node all the time";
    "again_reclaims_against_faults": "Space.Reclaim",
        "its own space, two more threads, one of them on the last node, which write to its pages",
        "read what another page was, or have a page given back and kept",
        "each word is what was written or 0; all frames come back; the victim's calls";
    "again_regions_on_two_nodes": "Space.AddRegion Space.RemoveRegion",
        "its own space, two more threads, one of them on the last node",
        "have two regions that overlap",
        "a word that only one thread may set at a time; the victim's calls";
    "again_tables_hung_on_two_nodes": "Space.Link Space.Unlink PageTable.Link",
        "its own space, a table, two more threads, one of them on the last node",
        "hang the table in two places",
        "a word that only one thread may set at a time; the victim's calls";
    "again_stops_and_resumes_across_nodes": "Thread.Stop Thread.Configure Thread.Resume",
        "a second thread, which is in the victim's service, and a third one that strikes at it as the first does",
        "have a thread run twice, or lose it in a service",
        "typed errors; the service's answers; the thread can be taken down";
    "again_invocations_of_a_far_home": "Sinv.Invoke",
        "the entry to a service whose home is the last node, two more threads",
        "get a wrong answer, or hold up other callers",
        "each answer is right or Again; the victim makes the same calls";
    "service_stacks_of_many_ids": "Sinv.Invoke Thread.Configure ThreadIds.Use",
        "a second thread, which has one id after the other, its own entry, and that of the victim's service",
        "use up what a client needs that comes later",
        "the service's answers; the victim's first call of its service on another node";
    "service_stacks_while_the_thread_ends_in_it": "Sinv.Invoke Thread.Exit Thread.Configure",
        "a second thread that ends within invocations, its own entry, and that of the victim's service",
        "leave something on a stack for the next thread with the id",
        "the service's answers; all frames come back";
    "time_child_without_a_budget_leaves_the_node": "Thread.Dispatch Thread.Migrate Time.Use",
        "two budgets of 2 ms, a second thread that runs on one, and a third one without, which the second dispatches",
        "run on another node, uncharged",
        "the child says where it runs; nothing dispatches it there";
    "time_child_without_a_budget_is_sent_away": "Thread.Dispatch Thread.Stop Thread.Resume Time.Use",
        "two budgets of 2 ms, a second thread that runs on one, and a third one without, which the second sends away",
        "run on another node, uncharged",
        "the child says where it runs; nothing dispatches it there";
};
