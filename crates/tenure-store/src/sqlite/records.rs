//! Owns reading the records back: the next start of the ledger, and the check of the files.

use rusqlite::OptionalExtension;
use tenure_core::change::{Record, RecordId, RecordKind};
use tenure_core::{Timestamp, Token};

use super::codec::{decode_record, record_kind};
use super::db::Db;
use crate::Error;

/// Gives every record to `each`, kind by kind and by id, with renewals in their leases.
pub(super) fn load(db: &Db, each: &mut dyn FnMut(Record)) -> Result<(), Error> {
    let transaction = db.connection.unchecked_transaction().map_err(db.fail())?;
    refuse_unknown_kinds(db)?;
    for kind in RecordKind::ALL.into_iter().filter(|kind| kind.is_live()) {
        load_kind(db, kind, each)?;
    }
    transaction.finish().map_err(db.fail())
}

/// A record that this version cannot read must not be left out in silence.
fn refuse_unknown_kinds(db: &Db) -> Result<(), Error> {
    let mut last = String::new();
    let sql = "SELECT kind FROM records WHERE kind > ?1 ORDER BY kind LIMIT 1";
    while let Some(kind) =
        db.connection.query_row(sql, [&last], |row| row.get::<_, String>(0)).optional().map_err(db.fail())?
    {
        record_kind(&db.path, &kind)?;
        last = kind;
    }
    Ok(())
}

fn load_kind(db: &Db, kind: RecordKind, each: &mut dyn FnMut(Record)) -> Result<(), Error> {
    let fail = db.fail();
    let mut statement =
        db.connection.prepare_cached("SELECT value FROM records WHERE kind = ?1 ORDER BY id").map_err(fail)?;
    let mut rows = statement.query([kind.as_str()]).map_err(fail)?;
    let mut renewals =
        db.connection.prepare_cached("SELECT token, expires_at FROM renewals ORDER BY token").map_err(fail)?;
    let mut renewals = renewals.query_map([], renewal).map_err(fail)?.peekable();
    while let Some(row) = rows.next().map_err(fail)? {
        let value = row.get_ref(0).map_err(fail)?;
        let mut record = decode_record(&db.path, kind, value.as_str().unwrap_or_default())?;
        if let Record::Lease(lease) = &mut record {
            // Both come in the order of tokens. An error is kept for the read that meets it.
            while renewals.next_if(|next| next.as_ref().is_ok_and(|(token, _)| *token < lease.token)).is_some() {}
            if let Some(found) = renewals.next_if(|next| next.as_ref().map_or(true, |(token, _)| *token == lease.token))
            {
                lease.expires_at = found.map_err(fail)?.1;
            }
        }
        each(record);
    }
    Ok(())
}

/// One record, if the tables have it.
pub(super) fn get(db: &Db, kind: RecordKind, id: &RecordId) -> Result<Option<Record>, Error> {
    let sql = "SELECT value FROM records WHERE kind = ?1 AND id = ?2";
    let found: Option<String> =
        db.connection.query_row(sql, [kind.as_str(), &id.0], |row| row.get(0)).optional().map_err(db.fail())?;
    found.map(|value| decode_record(&db.path, kind, &value)).transpose()
}

/// Records of a kind, the newest id first.
pub(super) fn newest(db: &Db, kind: RecordKind, before: Option<&RecordId>, limit: usize) -> Result<Vec<Record>, Error> {
    let sql = "SELECT value FROM records WHERE kind = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
    let mut statement = db.connection.prepare_cached(sql).map_err(db.fail())?;
    // Ids are hexadecimal, so every one of them comes before this.
    let before = before.map_or("~", |id| id.0.as_str());
    let rows = statement
        .query_map(rusqlite::params![kind.as_str(), before, limit as i64], |row| row.get::<_, String>(0))
        .map_err(db.fail())?;
    rows.map(|row| decode_record(&db.path, kind, &row.map_err(db.fail())?)).collect()
}

fn renewal(row: &rusqlite::Row<'_>) -> Result<(Token, Timestamp), rusqlite::Error> {
    Ok((Token::from_u64(row.get::<_, i64>(0)? as u64), Timestamp::from_unix_ms(row.get::<_, i64>(1)? as u64)))
}
