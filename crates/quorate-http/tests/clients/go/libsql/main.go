// libsql-client-go, by database/sql, over HTTP or WebSocket: libsql URL [TOKEN]
package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"strings"
	"time"

	. "quorate/clients/checks"

	"github.com/tursodatabase/libsql-client-go/libsql"
)

// Runs a transaction, and runs it again while the server says that it was aborted, because its leader was lost.
func transact(db *sql.DB, run func(tx *sql.Tx) error) error {
	var err error
	for range RunsMax {
		if err = once(db, run); err == nil || !strings.Contains(err.Error(), "the transaction was aborted") {
			return err
		}
	}
	return err
}

func once(db *sql.DB, run func(tx *sql.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if err = run(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func open(url string, token string) *sql.DB {
	options := []libsql.Option{}
	if token != "" {
		options = append(options, libsql.WithAuthToken(token))
	}
	return sql.OpenDB(Must(libsql.NewConnector(url, options...)))
}

func count(db interface {
	QueryRow(string, ...any) *sql.Row
}, table string) (n int64) {
	Check(db.QueryRow("SELECT count(*) FROM "+table).Scan(&n) == nil, "count of ", table)
	return n
}

func values(db *sql.DB) {
	want := []any{int64(math.MaxInt64), -1.5, "\U0001F600", nil, []byte{0, 255}, ""}
	var big, number, text, none, blob, empty any
	row := db.QueryRow("SELECT ?, ?, ?, ?, ?, ?", want...)
	Check(row.Scan(&big, &number, &text, &none, &blob, &empty) == nil, "values")
	Check(big == want[0] && number == want[1] && text == want[2] && none == nil && empty == "", big, number, text, none)
	Check(bytes.Equal(blob.([]byte), want[4].([]byte)), blob)

	var first, second string
	numbered := db.QueryRow("SELECT ?2, ?1", "one", "two")
	Check(numbered.Scan(&first, &second) == nil && first == "two" && second == "one", first, second)
	named := db.QueryRow("SELECT :a || $b || @c", sql.Named("c", "3"), sql.Named("b", "2"), sql.Named("a", "1"))
	Check(named.Scan(&first) == nil && first == "123", first)
}

func statements(db *sql.DB) {
	Must(db.Exec("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT UNIQUE)"))
	ann := Must(db.Exec("INSERT INTO users (name) VALUES (?)", "ann"))
	Check(Must(ann.LastInsertId()) == 1 && Must(ann.RowsAffected()) == 1, "the result of an INSERT")

	insert := Must(db.Prepare("INSERT INTO users (name) VALUES (:name) RETURNING id, name"))
	var id int64
	var name string
	Check(insert.QueryRow(sql.Named("name", "bob")).Scan(&id, &name) == nil && id == 2 && name == "bob", id, name)
	Check(insert.Close() == nil)

	rows := Must(db.Query("SELECT name FROM users ORDER BY id"))
	columns, names := Must(rows.Columns()), []string{}
	for rows.Next() {
		Check(rows.Scan(&name) == nil)
		names = append(names, name)
	}
	Check(rows.Err() == nil && rows.Close() == nil && strings.Join(names, " ") == "ann bob" && columns[0] == "name", names)
	Check(errors.Is(db.QueryRow("SELECT id FROM users WHERE name = ?", "cid").Scan(&id), sql.ErrNoRows), "no rows")

	_, err := db.Exec("INSERT INTO users (name) VALUES ('ann')")
	Fails(err, "UNIQUE constraint failed: users.name")
	_, err = db.Exec("SELECT * FROM missing")
	Fails(err, "no such table: missing")
}

func transactions(db *sql.DB) {
	kept := transact(db, func(tx *sql.Tx) error {
		if _, err := tx.Exec("INSERT INTO users (name) VALUES (?)", "cid"); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO users (name) VALUES ('cid')")
		if err != nil && strings.Contains(err.Error(), "the transaction was aborted") {
			return err
		}
		Fails(err, "UNIQUE constraint failed")
		_, err = tx.Exec("INSERT INTO users (name) VALUES (?)", "dan")
		return err
	})
	Check(kept == nil && count(db, "users") == 4, kept)

	enough := errors.New("enough")
	dropped := transact(db, func(tx *sql.Tx) error {
		if _, err := tx.Exec("DELETE FROM users"); err != nil {
			return err
		}
		return enough
	})
	Check(errors.Is(dropped, enough) && count(db, "users") == 4, dropped)
}

// A time is read from a column that is declared to hold one; it can be sent over HTTP only.
func times(db *sql.DB) {
	Must(db.Exec("CREATE TABLE blobs (at DATETIME)"))
	at := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	Must(db.Exec("INSERT INTO blobs VALUES (?)", at))
	var found time.Time
	Check(db.QueryRow("SELECT at FROM blobs").Scan(&found) == nil && found.Equal(at), found)
}

// Several statements in one text, which the client sends as a batch; over HTTP only.
func batches(db *sql.DB) {
	Must(db.Exec("CREATE TABLE log (x); INSERT INTO log VALUES (1); INSERT INTO log VALUES (2);"))
	Check(count(db, "log") == 2)
	_, err := db.Exec("BEGIN; INSERT INTO log VALUES (3); INSERT INTO missing VALUES (4); COMMIT;")
	Fails(err, "no such table: missing")
	Check(count(db, "log") == 2)
	Must(db.Exec("BEGIN; INSERT INTO log VALUES (3); INSERT INTO log VALUES (4); COMMIT;"))
	Check(count(db, "log") == 4)
}

func main() {
	log.SetFlags(log.Lshortfile)
	url, token := os.Args[1], ""
	if len(os.Args) > 2 {
		token = os.Args[2]
		_, err := open(url, "quorate_0").Exec("SELECT 1")
		Fails(err, "wrong name, password or token")
	}
	db := open(url, token)
	values(db)
	statements(db)
	transactions(db)
	if strings.HasPrefix(url, "http") {
		batches(db)
		times(db)
	}
	Check(db.Close() == nil)
	fmt.Println("passed")
}
