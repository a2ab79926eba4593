// go-redis, unmodified: go-redis URL prints `counting` before its last step, and `passed` at the end; go-redis restart URL
// is at a node that is started again.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const seconds = 5

var background = context.Background()

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(found, expected any) {
	if !reflect.DeepEqual(found, expected) {
		panic(fmt.Sprintf("%v instead of %v", found, expected))
	}
}

func allTypes(client *redis.Client) {
	check(client.FlushDB(background).Err())
	check(client.Set(background, "s", "v", 100*time.Second).Err())
	equal(client.Get(background, "s").Val(), "v")
	equal(client.IncrBy(background, "n", 5).Val(), int64(5))
	equal(client.HSet(background, "h", "a", "1", "b", "2").Val(), int64(2))
	equal(client.HGetAll(background, "h").Val(), map[string]string{"a": "1", "b": "2"})
	equal(client.RPush(background, "l", "x", "y", "z").Val(), int64(3))
	equal(client.LRange(background, "l", 0, -1).Val(), []string{"x", "y", "z"})
	equal(client.SAdd(background, "set", "m", "n").Val(), int64(2))
	equal(client.SIsMember(background, "set", "m").Val(), true)
	equal(client.ZAdd(background, "z", redis.Z{Score: 1, Member: "one"}, redis.Z{Score: 2, Member: "two"}).Val(), int64(2))
	equal(client.ZRange(background, "z", 0, -1).Val(), []string{"one", "two"})
	if err := client.LPush(background, "s", "x").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		panic(err)
	}
}

func manyAtOnce(client *redis.Client) {
	done, err := client.Pipelined(background, func(pipe redis.Pipeliner) error {
		for number := range 100 {
			pipe.Set(background, fmt.Sprint("p", number), number, 0)
			pipe.Get(background, fmt.Sprint("p", number))
		}
		return nil
	})
	check(err)
	equal(done[199].(*redis.StringCmd).Val(), "99")
	done, err = client.TxPipelined(background, func(pipe redis.Pipeliner) error {
		pipe.Incr(background, "t")
		pipe.Incr(background, "t")
		return nil
	})
	check(err)
	equal(done[1].(*redis.IntCmd).Val(), int64(2))
	changed := client.Watch(background, func(transaction *redis.Tx) error {
		check(client.Set(background, "w", "first", 0).Err())
		_, err := transaction.TxPipelined(background, func(pipe redis.Pipeliner) error {
			return pipe.Set(background, "w", "second", 0).Err()
		})
		return err
	}, "w")
	equal(changed, redis.TxFailedErr)
	equal(client.Get(background, "w").Val(), "first")
}

func blocking(client *redis.Client) {
	check(client.Del(background, "queue").Err())
	found := make(chan []string)
	go func() { found <- client.BLPop(background, 30*time.Second, "none", "queue").Val() }()
	check(client.RPush(background, "queue", "item").Err())
	equal(<-found, []string{"queue", "item"})
}

// Counts while the leader is killed. Nothing is sent twice, so nothing may count twice.
func counting(client *redis.Client) {
	fmt.Println("counting")
	done, unknown := 0, 0
	for end := time.Now().Add(seconds * time.Second); time.Now().Before(end); {
		if client.Incr(background, "count").Err() == nil {
			done++
		} else {
			unknown++
		}
	}
	count, err := client.Get(background, "count").Int()
	check(err)
	if count < done || count > done+unknown {
		panic(fmt.Sprintf("%d are done, %d unknown: %d", done, unknown, count))
	}
}

func main() {
	if os.Args[1] == "restart" {
		restart(os.Args[2])
		return
	}
	options, err := redis.ParseURL(os.Args[1])
	check(err)
	// The default is 3 seconds, after which a request is sent again.
	options.ReadTimeout = time.Minute
	client := redis.NewClient(options)
	allTypes(client)
	manyAtOnce(client)
	blocking(client)
	check(client.Del(background, "count").Err())
	options.MaxRetries = -1
	options.ReadTimeout = 30 * time.Second
	counting(redis.NewClient(options))
	fmt.Println("passed")
}
