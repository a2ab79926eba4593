//! What holds for the tables after each command.

use std::collections::BTreeSet;

use quorate_keys::*;

use super::ALL_PLACES;

/// Checks that the rows of keys say of the other tables what is there.
pub fn check(tables: &mut Memory) {
    let rows: Vec<KeyRow> = tables.rows().map(|(.., row)| row.clone()).collect();
    let known: BTreeSet<Id> = rows.iter().map(|row| row.id).collect();
    let left: BTreeSet<Id> = tables.trash().chain(tables.detached()).collect();
    assert!(known.is_disjoint(&left));
    assert!(tables.ids().all(|id| known.contains(&id) || left.contains(&id)), "rows of a lost id");
    let detached: BTreeSet<Id> = tables.detached().collect();
    let due: BTreeSet<(u64, Id)> = tables.due().filter(|(_, id)| !detached.contains(id)).collect();
    let said: BTreeSet<(u64, Id)> = rows.iter().filter_map(|row| Some((row.due?, row.id))).collect();
    assert_eq!(due, said, "each row of due times is the one of its key");
    for row in &rows {
        check_row(tables, row);
    }
}

fn check_row(tables: &mut Memory, row: &KeyRow) {
    let elements = collect!(tables, elements, row.id, &Span::ALL, Order::Up);
    let expiries = elements.iter().filter_map(|(_, element)| element.expires_at);
    let members = collect!(tables, members, row.id, &ALL_PLACES, Order::Up);
    let items = collect!(tables, items, row.id, &Span { from: i64::MIN, to: None }, Order::Up);
    assert_eq!(expiries.clone().count() as u64, row.volatile);
    let first = expiries.chain(row.expires_at).min();
    assert!(first.is_none_or(|first| row.due.is_some_and(|due| due <= first)), "something expires before it is due");
    let count = match row.kind {
        Kind::String => 0,
        Kind::Hash | Kind::Set => elements.len(),
        Kind::SortedSet => members.len(),
        Kind::List => items.len(),
    };
    assert_eq!(row.count, count as u64);
    if row.kind == Kind::SortedSet {
        assert_eq!(elements.len() as u64, row.volatile, "an element for each member that may expire");
        assert!(elements.iter().all(|(field, _)| members.iter().any(|(_, member)| member == field)));
        assert!(items.is_empty());
    } else {
        assert_eq!(elements.len() + members.len() + items.len(), count, "only rows of the kind");
    }
    assert!(row.kind == Kind::String || count > 0);
    let positions = (row.head..).take(items.len());
    assert!(items.iter().map(|(position, _)| *position).eq(positions), "a list has no gaps");
    for (score, member) in &members {
        assert_eq!(tables.score(row.id, member).unwrap(), Some(*score));
    }
    if row.kind == Kind::SortedSet {
        check_blocks(tables, row, &members);
    }
}

fn check_blocks(tables: &mut Memory, row: &KeyRow, members: &[Place]) {
    let small = collect!(tables, blocks, row.id, 0, &ALL_PLACES, Order::Up);
    let large = collect!(tables, blocks, row.id, 1, &ALL_PLACES, Order::Up);
    if row.head == 0 {
        assert!(small.is_empty() && large.is_empty() && row.count <= BLOCK_MEMBERS_MAX[0]);
        return;
    }
    let fixed: BTreeSet<&Place> = large.iter().map(|(start, _)| start).collect();
    for (level, blocks) in [(0, &small), (1, &large)] {
        assert_eq!(blocks[0].0, FIRST_PLACE);
        for (at, (start, count)) in blocks.iter().enumerate() {
            let below = |place: &Place| blocks.get(at + 1).is_none_or(|(next, _)| place < next);
            let from = members.partition_point(|place| place < start);
            assert_eq!(members[from..].partition_point(below) as u64, *count, "block {at} of level {level}");
            assert!(*count <= BLOCK_MEMBERS_MAX[level]);
            assert!(*count > 0 || fixed.contains(start), "an empty block that nothing needs");
        }
    }
    let starts: BTreeSet<&Place> = small.iter().map(|(start, _)| start).collect();
    assert!(fixed.is_subset(&starts));
    let most = members.len() as u64 / (BLOCK_MEMBERS_MAX[0] / 8) + 2 * large.len() as u64 + 1;
    assert!(small.len() as u64 <= most, "{} blocks of {} members", small.len(), members.len());
}

/// Sweeps all that is to be swept at a time, in pieces of random sizes.
pub fn sweep_all(tables: &mut Memory, now: u64, pieces: &[usize]) {
    let mut context = Context::new(now, Version(0), 0);
    for piece in pieces.iter().cycle() {
        check(tables);
        if next_due(tables).unwrap().is_none_or(|due| due > now) {
            break;
        }
        let swept = sweep(tables, &mut context, *piece).unwrap();
        assert!((1..=*piece).contains(&swept));
    }
    assert_eq!(sweep(tables, &mut context, 100), Ok(0));
    assert_eq!((tables.trash().count(), tables.detached().count()), (0, 0));
    assert!(tables.due().all(|(due, _)| due > now), "a row of due times that is past");
    let known: BTreeSet<Id> = tables.rows().map(|(.., row)| row.id).collect();
    assert!(tables.ids().all(|id| known.contains(&id)));
}
