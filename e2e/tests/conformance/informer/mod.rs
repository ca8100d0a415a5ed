//! The promises of an informer on a real API server, with streamed and with paged lists. `shared-informer` tests them on a
//! sandbox.

mod lists;
mod scopes;
mod watches;

use std::process::ExitCode;

use e2e::promises;

pub(crate) fn run() -> ExitCode {
    e2e::informer::run(&promises![
        lists::existing_objects_are_reported_first_and_marked_as_initial,
        lists::a_delete_that_was_missed_is_found_by_a_list,
        watches::every_change_is_reported,
        watches::a_watch_that_was_cut_is_resumed_without_a_list,
        watches::a_version_that_has_expired_leads_to_one_list,
        scopes::one_informer_follows_several_namespaces,
        scopes::a_watch_adds_an_object_that_starts_to_match_a_label_selector_and_deletes_one_that_stops,
        scopes::a_field_selector_narrows_to_one_object,
        scopes::a_kind_that_is_removed_is_reported_and_found_when_it_is_installed_again,
    ])
}
