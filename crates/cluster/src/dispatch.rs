//! The way of an object's change to the index of its Cluster. With one index there is no choice: its scope decides which
//! groups it serves.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use rules::PriceList;
use rules::capi::{Cluster, Meta, ObjectKey};
use shared_informer::Projection;

use super::fleet::FleetSink;
use index::{Change, Index, Routed, Sink, Tag};

/// The sink of the core kinds.
pub(super) enum Dispatch {
    /// The only index.
    One(Arc<Index>),
    /// The indexes of the Clusters that a selector matches.
    ByCluster(Arc<FleetSink>),
}

impl Dispatch {
    /// Leaves out the groups of these namespaces, and of no others.
    pub(super) fn leave_out(&self, namespaces: &BTreeSet<String>) {
        match self {
            Self::One(index) => index.apply(Change::ForbiddenNamespaces(namespaces.clone())),
            Self::ByCluster(sink) => sink.leave_out(namespaces),
        }
    }

    /// Returns the projection of Clusters.
    pub(super) fn cluster_projection(&self) -> Projection<Cluster> {
        match self {
            Self::One(_) => Cluster::projection(),
            Self::ByCluster(sink) => sink.cluster_projection(),
        }
    }

    /// Applies the operator's prices to all indexes, and to those to come.
    pub(super) fn set_prices(&self, prices: &Arc<PriceList>) {
        match self {
            Self::One(index) => index.apply(Change::Prices(Arc::clone(prices))),
            Self::ByCluster(sink) => sink.set_prices(prices),
        }
    }
}

impl<T: Routed> Sink<T> for Dispatch {
    fn apply(&self, kind: &T::Kind, object: &Meta, tag: Tag<'_>, change: Option<Change>) {
        match self {
            Self::One(index) => {
                if let Some(change) = change {
                    index.apply(change);
                }
            }
            Self::ByCluster(sink) => Sink::<T>::apply(&**sink, kind, object, tag, change),
        }
    }

    fn delete(&self, kind: &T::Kind, key: ObjectKey) {
        match self {
            Self::One(index) => index.apply(T::deleted(kind, key)),
            Self::ByCluster(sink) => Sink::<T>::delete(&**sink, kind, key),
        }
    }

    fn keys(&self, kind: &T::Kind) -> HashSet<ObjectKey> {
        match self {
            Self::One(index) => T::keys(index, kind),
            Self::ByCluster(sink) => Sink::<T>::keys(&**sink, kind),
        }
    }
}
