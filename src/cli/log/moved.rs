//! Log targets that were renamed: for one release, a filter that names an old target means the new one too.

use std::collections::VecDeque;

/// The old and the new names.
const MOVED: [(&str, &str); 23] = [
    ("capi_autoscaler_provider::cli::serve", "app"),
    ("capi_autoscaler_provider::cli::progress", "app::progress"),
    ("capi_autoscaler_provider::cli::watch", "change_stream::watch"),
    ("capi_autoscaler_provider::connect", "connect"),
    ("capi_autoscaler_provider::notify", "change_stream::notify"),
    ("capi_autoscaler_provider::cluster", "cluster"),
    ("capi_autoscaler_provider::grpc", "grpc"),
    ("capi_autoscaler_provider::index", "index"),
    ("capi_autoscaler_provider::prices", "prices"),
    ("capi_autoscaler_provider::scale", "scale"),
    ("capi_autoscaler_provider::server", "server"),
    ("capi_autoscaler_provider::traces", "traces"),
    ("grpc::notable", "grpc::call_log"),
    ("scale::look", "scale::outcome"),
    ("scale::names", "scale::outcome"),
    ("scale::read_only", "scale::outcome"),
    ("scale::replace", "scale::outcome"),
    ("scale::size", "scale::outcome"),
    ("shared_informer::hook", "shared_informer::informer::hook"),
    ("shared_informer::index", "shared_informer::informer::index"),
    ("shared_informer::reflector", "shared_informer::informer::reflector"),
    ("shared_informer::slot", "shared_informer::informer::delivery"),
    ("shared_informer::stream", "shared_informer::informer::stream"),
];

/// Returns the filter with a directive for each new target whose old one it names. The filter's own directives come
/// last, since the later of two directives for one target wins.
pub(super) fn with_new_targets(filter: &str) -> String {
    let mut added: Vec<(usize, String)> = Vec::new();
    let mut pending: VecDeque<_> = directives(filter).into_iter().map(str::to_owned).collect();
    // A new target may have been renamed again.
    while let Some(directive) = pending.pop_front() {
        let (target, rest) = directive.split_at(directive.find(['[', '=']).unwrap_or(directive.len()));
        if target.is_empty() || rest.is_empty() {
            continue;
        }
        for (old, new) in MOVED {
            let below = target.strip_prefix(old).filter(|below| below.is_empty() || below.starts_with("::"));
            let renamed = if let Some(below) = below {
                format!("{new}{below}{rest}")
            } else if old.starts_with(target) && !new.starts_with(target) {
                format!("{new}{rest}")
            } else {
                continue;
            };
            added.push((target.len(), format!("{renamed},")));
            pending.push_back(renamed);
        }
    }
    // The longer of two old targets is the more specific one, and must come later.
    added.sort_by_key(|(length, _)| *length);
    added.into_iter().map(|(_, directive)| directive).chain([filter.to_owned()]).collect()
}

/// Returns the directives of a filter: commas in brackets separate the fields of one.
fn directives(filter: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0_u32, 0, Vec::new());
    for (at, letter) in filter.char_indices() {
        match letter {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                found.push(filter[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(filter[start..].trim());
    found
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const PREFIX: &str = "capi_autoscaler_provider::";

    /// `P` stands for this program's prefix.
    #[rstest]
    #[case::a_level("info", "info")]
    #[case::another_target("info,app=debug", "info,app=debug")]
    #[case::a_module_that_became_a_crate("info,P::scale::run=debug", "scale::run=debug,info,P::scale::run=debug")]
    #[case::all_of_this_program(
        "capi_autoscaler_provider=debug",
        "app=debug,app::progress=debug,change_stream::watch=debug,connect=debug,change_stream::notify=debug,\
         cluster=debug,grpc=debug,index=debug,prices=debug,scale=debug,server=debug,traces=debug,capi_autoscaler_provider=debug"
    )]
    #[case::a_renamed_module("scale::look=debug", "scale::outcome=debug,scale::look=debug")]
    #[case::one_that_was_renamed_twice(
        "P::scale::look=debug",
        "scale::outcome=debug,scale::look=debug,P::scale::look=debug"
    )]
    #[case::one_that_moved_into_another("scale::names=debug", "scale::outcome=debug,scale::names=debug")]
    #[case::an_old_target("info,P::cli::serve=warn", "app=warn,info,P::cli::serve=warn")]
    #[case::more_than_an_old_target(
        "P::cli=debug",
        "app=debug,app::progress=debug,change_stream::watch=debug,P::cli=debug"
    )]
    #[case::the_longer_wins(
        "P::cli::serve=warn,P::cli=debug",
        "app=debug,app::progress=debug,change_stream::watch=debug,app=warn,P::cli::serve=warn,P::cli=debug"
    )]
    #[case::with_a_span(
        "P::cli::serve[call{a=1,b=2}]=trace",
        "app[call{a=1,b=2}]=trace,P::cli::serve[call{a=1,b=2}]=trace"
    )]
    #[case::a_longer_name("P::cli::served=warn", "P::cli::served=warn")]
    fn a_filter_means_new_targets_too(#[case] filter: &str, #[case] expected: &str) {
        assert_eq!(with_new_targets(&filter.replace("P::", PREFIX)), expected.replace("P::", PREFIX));
    }
}
