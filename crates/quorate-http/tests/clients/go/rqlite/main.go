// gorqlite: rqlite URL [TOKEN]
package main

import (
	"fmt"
	"log"
	"net/url"
	"os"
	"strings"

	"github.com/rqlite/gorqlite"
)

// How often a request that the server has aborted is sent.
const runsMax = 10

func check(holds bool, found ...any) {
	if !holds {
		log.Panic(found...)
	}
}

func must[T any](value T, err error) T {
	check(err == nil, err)
	return value
}

func fails(err error, text string) {
	check(err != nil && strings.Contains(err.Error(), text), "an error with ", text, ": ", err)
}

// Returns the URL of the client, which takes the login from there.
func address(at string, token string) string {
	parsed := must(url.Parse(at))
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
	found := must(client.QueryOne("SELECT count(*) FROM foo"))
	check(found.Next() && found.Scan(&n) == nil, "count")
	return n
}

func writes(client *gorqlite.Connection) {
	must(client.WriteOne("CREATE TABLE foo (id INTEGER PRIMARY KEY, name TEXT UNIQUE, data BLOB, score REAL, big INTEGER)"))
	fiona := must(client.WriteOneParameterized(
		with("INSERT INTO foo (name, data, score, big) VALUES (?, x'00ff', ?, ?)", "fiona", -1.5, int64(1)<<60)))
	check(fiona.LastInsertID == 1 && fiona.RowsAffected == 1, fiona)
	both := must(client.WriteParameterized([]gorqlite.ParameterizedStatement{
		with("INSERT INTO foo (name) VALUES (?)", "bob"),
		with("UPDATE foo SET name = :name WHERE id = :id", map[string]any{"name": "eve", "id": 1}),
	}))
	check(both[0].LastInsertID == 2 && both[1].RowsAffected == 1, both)
	must(client.QueueOneParameterized(with("UPDATE foo SET score = ? WHERE id = ?", 2.5, 2)))

	// All statements of a call are one transaction.
	_, err := client.Write([]string{"DELETE FROM foo", "INSERT INTO foo (id) VALUES (3), (3)"})
	fails(err, "UNIQUE constraint failed: foo.id")
	check(count(client) == 2)
	_, err = client.WriteOne("INSERT INTO missing VALUES (1)")
	fails(err, "no such table: missing")
	_, err = client.QueryOne("SELECT missing FROM foo")
	fails(err, "no such column: missing")
}

func reads(client *gorqlite.Connection) {
	for _, level := range []string{"weak", "linearizable", "strong"} {
		check(client.SetConsistencyLevel(must(gorqlite.ParseConsistencyLevel(level))) == nil, level)
		check(count(client) == 2, level)
	}
	found := must(client.QueryOneParameterized(with("SELECT id, name, score, data, big FROM foo WHERE name = ?", "eve")))
	check(strings.Join(found.Columns(), " ") == "id name score data big" && found.NumRows() == 1, found.Columns())
	check(strings.Join(found.Types(), " ") == "integer text real blob integer", found.Types())
	var id, big int64
	var name, data string
	var score float64
	check(found.Next())
	err := found.Scan(&id, &name, &score, &data, &big)
	// A blob comes as its base64.
	check(err == nil && id == 1 && name == "eve" && score == -1.5 && data == "AP8=", err, id, name, score, data)
	check(big == 1<<60, big)
	none := must(client.QueryOne("SELECT data, score FROM foo WHERE id = 2"))
	row := map[string]any{}
	if none.Next() {
		row = must(none.Map())
	}
	check(row["data"] == nil && row["score"] == 2.5, row)
}

// A request that writes and reads is an interactive transaction. It is sent again while the server says that it was
// aborted, because its leader was lost.
func mixed(client *gorqlite.Connection) {
	var done []gorqlite.RequestResult
	var err error
	for range runsMax {
		done, err = client.RequestParameterized([]gorqlite.ParameterizedStatement{
			with("INSERT INTO foo (name) VALUES (?)", "cid"),
			with("SELECT name FROM foo WHERE id = ?", 3),
		})
		if err == nil || !strings.Contains(err.Error(), "the transaction was aborted") {
			break
		}
	}
	check(err == nil, err)
	check(done[0].Write.LastInsertID == 3 && done[1].Query.Next(), done)
	var name string
	check(done[1].Query.Scan(&name) == nil && name == "cid", name)
}

func main() {
	log.SetFlags(log.Lshortfile)
	at, token := os.Args[1], ""
	if len(os.Args) > 2 {
		token = os.Args[2]
		_, err := gorqlite.Open(address(at, "quorate_0"))
		fails(err, "401")
	}
	client := must(gorqlite.Open(address(at, token)))
	check(must(client.Leader()) != "" && len(must(client.Peers())) > 0, "the cluster")
	writes(client)
	reads(client)

	mixed(client)
	client.Close()
	fmt.Println("passed")
}
