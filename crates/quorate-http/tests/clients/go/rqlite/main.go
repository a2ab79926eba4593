// gorqlite: rqlite URL [TOKEN]
package main

import (
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"

	. "quorate/clients/checks"

	"github.com/rqlite/gorqlite"
)

// Returns the URL of the client, which takes the login from there.
func address(at string, token string) string {
	parsed := Must(url.Parse(at))
	if token != "" {
		// The client sends a name and a password; the server takes a token as a password.
		parsed.User = url.UserPassword("anyone", token)
	}
	parsed.Path = "/"
	return parsed.String()
}

func with(query string, arguments ...any) gorqlite.ParameterizedStatement {
	return gorqlite.ParameterizedStatement{Query: query, Arguments: arguments}
}

func count(client *gorqlite.Connection) (n int64) {
	found := Must(client.QueryOne("SELECT count(*) FROM foo"))
	Check(found.Next() && found.Scan(&n) == nil, "count")
	return n
}

func writes(client *gorqlite.Connection) {
	Must(client.WriteOne("CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT UNIQUE, data BLOB, score REAL, big INTEGER)"))
	fiona := Must(client.WriteOneParameterized(
		with("INSERT INTO foo (name, data, score, big) VALUES (?, x'00ff', ?, ?)", "fiona", -1.5, int64(1)<<60)))
	Check(fiona.LastInsertID == 1 && fiona.RowsAffected == 1, fiona)
	both := Must(client.WriteParameterized([]gorqlite.ParameterizedStatement{
		with("INSERT INTO foo (name) VALUES (?)", "bob"),
		with("UPDATE foo SET name = :name WHERE id = :id", map[string]any{"name": "eve", "id": 1}),
	}))
	Check(both[0].LastInsertID == 2 && both[1].RowsAffected == 1, both)
	Must(client.QueueOneParameterized(with("UPDATE foo SET score = ? WHERE id = ?", 2.5, 2)))

	// All statements of a call are one transaction.
	_, err := client.Write([]string{"DELETE FROM foo", "INSERT INTO foo (id) VALUES (3), (3)"})
	Fails(err, "UNIQUE constraint failed: foo.id")
	Check(count(client) == 2)
	_, err = client.WriteOne("INSERT INTO missing VALUES (1)")
	Fails(err, "no such table: missing")
	_, err = client.QueryOne("SELECT missing FROM foo")
	Fails(err, "no such column: missing")
}

func reads(client *gorqlite.Connection) {
	for _, level := range []string{"weak", "linearizable", "strong"} {
		Check(client.SetConsistencyLevel(Must(gorqlite.ParseConsistencyLevel(level))) == nil, level)
		Check(count(client) == 2, level)
	}
	found := Must(client.QueryOneParameterized(with("SELECT id, name, score, data, big FROM foo WHERE name = ?", "eve")))
	Check(strings.Join(found.Columns(), " ") == "id name score data big" && found.NumRows() == 1, found.Columns())
	Check(strings.Join(found.Types(), " ") == "integer text real blob integer", found.Types())
	var id, big int64
	var name, data string
	var score float64
	Check(found.Next())
	err := found.Scan(&id, &name, &score, &data, &big)
	// A blob comes as its base64.
	Check(err == nil && id == 1 && name == "eve" && score == -1.5 && data == "AP8=", err, id, name, score, data)
	Check(big == 1<<60, big)
	none := Must(client.QueryOne("SELECT data, score FROM foo WHERE id = 2"))
	row := map[string]any{}
	if none.Next() {
		row = Must(none.Map())
	}
	Check(row["data"] == nil && row["score"] == 2.5, row)
}

// A request that writes and reads is an interactive transaction. It is sent again while the server says that it was
// aborted, because its leader was lost.
func mixed(client *gorqlite.Connection) {
	var done []gorqlite.RequestResult
	var err error
	for range RunsMax {
		done, err = client.RequestParameterized([]gorqlite.ParameterizedStatement{
			with("INSERT INTO foo (name) VALUES (?)", "cid"),
			with("SELECT name FROM foo WHERE id = ?", 3),
		})
		if err == nil || !strings.Contains(err.Error(), "the transaction was aborted") {
			break
		}
	}
	Check(err == nil, err)
	Check(done[0].Write.LastInsertID == 3 && done[1].Query.Next(), done)
	var name string
	Check(done[1].Query.Scan(&name) == nil && name == "cid", name)
}

func main() {
	log.SetFlags(log.Lshortfile)
	at, token := os.Args[1], ""
	if len(os.Args) > 2 {
		token = os.Args[2]
		_, err := gorqlite.Open(address(at, "quorate_0"))
		Fails(err, "401")
	}
	client := Must(gorqlite.Open(address(at, token)))
	Check(Must(client.Leader()) != "" && len(Must(client.Peers())) > 0, "the cluster")
	writes(client)
	reads(client)

	mixed(client)
	client.Close()
	fmt.Println("passed")
}
