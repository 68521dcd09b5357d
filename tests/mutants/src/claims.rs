//! Checks of changes that are of several words, and of what dead nodes leave in the middle of one.

use crate::Class::*;
use crate::{Mutant, m};

pub(crate) const CLAIMS: &[Mutant] = &[
    m(
        "check/core::fp::make_room::copy",
        Contents,
        "registers of a side that waits are moved before something else comes to where they are",
        &[
            "core/unit/host::fp_waiting_tests::a_service_on_the_isa_of_a_side_that_waits_takes_nothing_from_it",
            "core/unit/host::fp_waiting_tests::services_of_services_take_nothing_from_a_side_that_waits",
            "core/unit/host::fp_waiting_tests::crossing_calls_take_nothing_from_a_side_that_waits",
        ],
    ),
    m(
        "check/core::fp::take_up::kept",
        Contents,
        "a side that has waited finds its registers",
        &[
            "core/unit/host::fp_tests::each_isa_has_its_own",
            "core/unit/host::fp_waiting_tests::crossing_calls_take_nothing_from_a_side_that_waits",
        ],
    ),
    m(
        "check/object::component::change::claim",
        State,
        "one CPU at a time changes the parts of a component, or its fault handler",
        &[
            "core/unit/host::component_races::of_two_that_set_a_fault_handler_one_wins_as_a_whole",
            "core/unit/host::component_races::of_two_that_configure_a_component_one_wins_as_a_whole",
            "recovery/unit/tests::components::a_handler_that_a_dead_node_was_setting_is_whole_and_can_be_set_anew",
        ],
    ),
    m(
        "check/object::component::fault_entry::again",
        State,
        "a handler that has changed while it was read is read again",
        &[
            "core/unit/host::component_races::a_handler_that_is_read_while_it_changes_all_the_time_is_whole",
        ],
    ),
    m(
        "check/recovery::space::regions",
        State,
        "slots of regions that a dead node was changing are free again",
        &[
            "recovery/unit/tests::regions::a_region_that_a_dead_node_was_changing_is_there_or_its_range_is_free",
            "recovery/unit/tests::regions::changes_of_regions_that_a_dead_node_has_not_counted_are_counted",
        ],
    ),
];
