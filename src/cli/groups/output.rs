//! Selects the part of the state that is printed, and renders it.

use anyhow::anyhow;

use super::Output;
use crate::cli::printing;
use page::state::tables::{View, table};
use page::state::{CheckState, State};
use rules::text::visible;

/// The similarity, from 0 to 1, above which a name is suggested; clap has the same.
const SIMILAR: f64 = 0.7;
/// The maximum number of names that are suggested.
const MOST_NAMED: usize = 3;

/// The wanted part of the state.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Filter {
    /// Ids, their last parts, or parts of names; an empty list selects all groups.
    pub(super) ids: Vec<String>,
    /// The only namespace, if one is given.
    pub(super) namespace: Option<String>,
    /// True if objects that are left out are wanted too.
    pub(super) all: bool,
    /// True if instances are wanted too.
    pub(super) instances: bool,
}

impl Filter {
    /// Returns the wanted part of the state.
    ///
    /// # Errors
    /// If an id matches no object, left out or not.
    pub(super) fn apply(&self, mut state: State) -> anyhow::Result<State> {
        let in_namespace = |namespace: &str| self.namespace.as_deref().is_none_or(|wanted| wanted == namespace);
        state.groups.retain(|group| in_namespace(&group.namespace));
        state.left_out.retain(|object| in_namespace(&object.namespace));
        if !self.ids.is_empty() {
            let known: Vec<_> = state
                .groups
                .iter()
                .map(|it| it.id.clone())
                .chain(state.left_out.iter().map(|it| it.id.clone()))
                .collect();
            let matches: Vec<_> = self.ids.iter().map(|wanted| matching(wanted, &known)).collect::<Result<_, _>>()?;
            let is_wanted = |id: &str| self.ids.iter().zip(&matches).any(|(wanted, is_match)| is_match(wanted, id));
            state.groups.retain(|group| is_wanted(&group.id));
            state.left_out.retain(|object| is_wanted(&object.id));
        }
        // A user who names an object that is left out wants to know why.
        if !self.all && (self.ids.is_empty() || !state.groups.is_empty()) {
            state.left_out.clear();
        }
        Ok(state)
    }
}

type Match = fn(&str, &str) -> bool;

/// Returns how an id is meant: as the end of one of these, or else as a part of names.
fn matching(wanted: &str, known: &[String]) -> anyhow::Result<Match> {
    let matches: [Match; 2] = [is_end, is_part];
    let found = matches.into_iter().find(|is_match| known.iter().any(|id| is_match(wanted, id)));
    found.ok_or_else(|| {
        anyhow!(
            "no node group has {wanted:?} in its name; {}groups --all shows all there are, and what is excluded and why",
            near(wanted, known)
        )
    })
}

/// Returns true if the name contains `wanted`, or the id if that has a slash.
fn is_part(wanted: &str, id: &str) -> bool {
    let of = if wanted.contains('/') { id } else { name(id) };
    !wanted.is_empty() && of.to_lowercase().contains(&wanted.to_lowercase())
}

fn name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// Returns the ids with the most similar names, in words for people.
fn near(wanted: &str, known: &[String]) -> String {
    let similar = |id: &String| strsim::jaro(name(wanted), name(id));
    let mut near: Vec<_> = known.iter().map(|id| (similar(id), id)).filter(|(how, _)| *how > SIMILAR).collect();
    near.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    let near: Vec<_> = near.into_iter().take(MOST_NAMED).map(|(_, id)| visible(id)).collect();
    if near.is_empty() { String::new() } else { format!("similar: {}; ", near.join(", ")) }
}

/// Returns true if `wanted` is the whole id or its last parts.
fn is_end(wanted: &str, id: &str) -> bool {
    id.strip_suffix(wanted).is_some_and(|rest| rest.is_empty() || rest.ends_with('/')) && !wanted.is_empty()
}

/// Returns the state as text, ending with a newline.
pub(super) fn render(state: &State, output: Output, filter: &Filter) -> anyhow::Result<String> {
    let view = View {
        wide: output == Output::Wide,
        all: filter.all || !state.left_out.is_empty(),
        instances: filter.instances,
    };
    match output {
        Output::Table | Output::Wide => Ok(table(state, view)),
        Output::Json => printing::json(state),
        Output::Yaml => printing::yaml(state),
    }
}

/// Returns the reasons why the output is incomplete, unless it says so itself.
pub(super) fn warnings(state: &State, output: Output, filter: &Filter) -> Vec<String> {
    let nothing = filter.namespace.as_ref().filter(|_| state.groups.is_empty() && state.left_out.is_empty());
    let nothing = nothing.map(|namespace| {
        let more = if filter.all { "" } else { "; --all adds what is excluded" };
        format!(
            "no node group in namespace {namespace:?}: correct --namespace, or leave it out to see all there are{more}"
        )
    });
    let is_said = matches!(output, Output::Table | Output::Wide);
    let pending = state.head.checks.iter().filter(|check| check.state == CheckState::Pending && !is_said);
    let pending = pending.map(|check| {
        let why = check.reason.as_deref().unwrap_or("no reason given");
        format!("not in sync: {}: {}", visible(&check.name), visible(why))
    });
    nothing.into_iter().chain(pending).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use page::state::{Check, Head};

    #[rstest::rstest]
    #[case::right_to_left('\u{202e}')]
    #[case::isolate('\u{2066}')]
    #[case::c1('\u{9b}')]
    #[case::next_line('\u{85}')]
    #[case::delete('\u{7f}')]
    #[case::escape('\u{1b}')]
    #[case::line_separator('\u{2028}')]
    #[case::plain('人')]
    fn no_form_lets_out_what_a_terminal_obeys(
        #[case] odd: char,
        #[values(Output::Table, Output::Wide, Output::Json, Output::Yaml)] output: Output,
    ) {
        let head = Head { checks: vec![Check::pending("one", format!("a{odd}b"))], ..Head::default() };
        let state = State { head, ..State::default() };
        let text = render(&state, output, &Filter::default()).unwrap();
        let obeyed = |c: char| (c.is_control() && c != '\n') || matches!(c, '\u{2028}' | '\u{202e}' | '\u{2066}');
        assert!(!text.contains(obeyed), "{text:?}");
        if let Output::Json | Output::Yaml = output {
            assert_eq!(serde_yaml::from_str::<State>(&text).unwrap(), state);
        }
    }
}
