//! Tests of deleted groups, on a copy of the program that gets no Refresh.

use std::{collections::HashMap, time::Duration};

use rstest::rstest;
use rules::capi::PRICE_PER_HOUR;
use serde_json::json;
use tokio::time::advance;

use super::objects::*;
use crate::{Change, Index, NodeQuery};

const MINUTE: Duration = Duration::from_secs(60);

fn priced(name: &str) -> Change {
    let mut more = capacity_annotations("4", "16Gi");
    merge(&mut more, &json!({"metadata": {"annotations": {PRICE_PER_HOUR: "1"}}}));
    deployment(name, 1, ("1", "10"), &more)
}

/// Applies an unrelated change.
fn something_happens(index: &Index) {
    index.apply_quietly(Change::NodeGone("elsewhere".into()));
}

#[rstest]
#[case::that_was_never_asked(false)]
#[case::that_was_asked_once(true)]
#[tokio::test(start_paused = true)]
async fn a_group_is_kept_for_15_minutes_after_it_is_gone(#[case] is_pinned: bool) {
    let index = Index::new(rules());
    index.apply_quietly(priced("workers"));
    if is_pinned {
        index.refresh();
    }
    index.apply_quietly(Change::ScalableGone(id(WORKERS)));
    advance(14 * MINUTE).await;
    // The deletion is reported a second time.
    index.apply_quietly(Change::ScalableGone(id(WORKERS)));
    assert!(index.served(&id(WORKERS)).is_some());
    assert_eq!(index.target_size(&id(WORKERS)), Some(1));
    advance(MINUTE).await;
    something_happens(&index);
    assert!(index.served(&id(WORKERS)).is_none(), "it is kept for ever");
    assert_eq!((index.target_size(&id(WORKERS)), index.instances(&id(WORKERS))), (None, None));
    assert_eq!(index.stats().priced, 0);
    assert_eq!(index.inner.read().live.leftovers(), Vec::<&str>::new());
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_made_anew_stays() {
    let index = Index::new(rules());
    index.apply_quietly(priced("workers"));
    index.apply_quietly(Change::ScalableGone(id(WORKERS)));
    advance(14 * MINUTE).await;
    index.apply_quietly(priced("workers"));
    advance(2 * MINUTE).await;
    something_happens(&index);
    assert!(index.served(&id(WORKERS)).is_some());
    index.apply_quietly(Change::ScalableGone(id(WORKERS)));
    advance(14 * MINUTE).await;
    something_happens(&index);
    assert!(index.served(&id(WORKERS)).is_some(), "its time begins anew");
    assert_eq!(index.stats().priced, 1);
}

/// NodeGroupForNode never returns a group that the pinned list lacks.
#[tokio::test(start_paused = true)]
async fn the_pinned_list_stays_as_it_is_until_the_next_refresh() {
    let index = index(workers());
    index.apply_quietly(Change::ScalableGone(id(WORKERS)));
    advance(16 * MINUTE).await;
    something_happens(&index);
    let named = |index: &Index| {
        let annotations = HashMap::new();
        let nodes = [("a", "cloud:///zone/a"), ("x", "replica-MachineDeployment-team-a_workers-0")];
        nodes.map(|(name, provider_id)| {
            let query = NodeQuery { name, provider_id, annotations: &annotations };
            index.group_of_node(query).map(|group| group.text.to_string())
        })
    };
    assert_eq!(index.groups().len(), 1);
    assert_eq!(named(&index), [Some(WORKERS.to_owned()), None]);
    index.apply_quietly(deployment("workers", 1, ("1", "10"), &json!({})));
    assert_eq!(named(&index)[1], Some(WORKERS.to_owned()), "it is pinned still");
    index.apply_quietly(Change::ScalableGone(id(WORKERS)));
    advance(16 * MINUTE).await;
    something_happens(&index);
    index.refresh();
    assert_eq!((index.groups().len(), named(&index)), (0, [None, None]));
}
