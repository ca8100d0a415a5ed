//! The bar of a node group: it spans 0 to the max size, and shows the requested size, the running part of it, and a
//! mark at the min size. A text alternative gives the same values.

use maud::{Markup, html};

use crate::state::Group;

/// The width of the drawing, in its own units.
const WIDTH: f64 = 200.0;

/// Renders the bar of a group.
pub(super) fn bar(group: &Group) -> Markup {
    // A size beyond its bounds is drawn too.
    let most = f64::from(group.max_size.max(group.size).max(1));
    let at = |size: f64| size.clamp(0.0, most) / most * WIDTH;
    let size = f64::from(group.size.max(0));
    let running = f64::from(u32::try_from(group.counts.running).unwrap_or(u32::MAX)).min(size);
    html! {
        svg class="bar" viewBox="0 0 200 12" preserveAspectRatio="none" role="img" aria-label=(description(group)) {
            rect class="track" x="0" y="2" width="200" height="8" {}
            rect class="asked" x="0" y="2" width=(number(at(size))) height="8" {}
            rect class="running" x="0" y="2" width=(number(at(running))) height="8" {}
            @if group.min_size > 0 {
                rect class="least" x=(number((at(f64::from(group.min_size)) - 1.0).max(0.0))) y="0" width="2" height="12" {}
            }
            @if group.size > group.max_size {
                rect class="most" x=(number(at(f64::from(group.max_size)) - 1.0)) y="0" width="2" height="12" {}
            }
        }
    }
}

/// Returns the content of the bar as text.
pub(super) fn description(group: &Group) -> String {
    format!("size {}, {} running, between {} and {}", group.size, group.counts.running, group.min_size, group.max_size)
}

/// Formats a coordinate with one decimal.
fn number(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::InstanceCounts;

    fn drawn(min_size: i32, size: i32, max_size: i32, running: u64) -> String {
        let counts = InstanceCounts { running, ..InstanceCounts::default() };
        bar(&Group { min_size, max_size, size, counts, ..Group::default() }).into_string()
    }

    #[test]
    fn it_shows_running_size_and_min_against_max_and_says_so() {
        let bar = drawn(1, 5, 10, 4);
        for part in [
            r#"aria-label="size 5, 4 running, between 1 and 10""#,
            r#"class="asked" x="0" y="2" width="100.0""#,
            r#"class="running" x="0" y="2" width="80.0""#,
            r#"class="least" x="19.0""#,
        ] {
            assert!(bar.contains(part), "{part}: {bar}");
        }
        assert!(!bar.contains("most"), "{bar}");
    }

    #[test]
    fn a_size_beyond_the_largest_is_drawn_with_a_mark_at_that() {
        let bar = drawn(0, 20, 10, 30);
        assert!(bar.contains(r#"class="running" x="0" y="2" width="200.0""#), "{bar}");
        assert!(bar.contains(r#"class="most" x="99.0""#) && !bar.contains("least"), "{bar}");
    }

    #[test]
    fn a_group_of_nothing_can_be_drawn() {
        assert!(drawn(0, 0, 0, 0).contains(r#"class="asked" x="0" y="2" width="0.0""#));
        assert!(drawn(0, -1, -1, u64::MAX).contains("size -1"));
    }
}
