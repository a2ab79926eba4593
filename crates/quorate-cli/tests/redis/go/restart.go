package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// So many before the node is killed, and so many after it is there again.
const steps = 10

func connect(url string, retries int) *redis.Client {
	options, err := redis.ParseURL(url)
	check(err)
	options.ReadTimeout, options.MaxRetries, options.MaxRetryBackoff = time.Minute, retries, time.Second
	return redis.NewClient(options)
}

// At a node that is killed and started again. Sends again what broke; what must not be done twice has a name, or is not
// sent again. Prints `working` after the first steps, and ends some steps after the end of standard input.
func restart(url string) {
	again, once := connect(url, 60), connect(url, -1)
	ended := make(chan bool)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	done, counted, unknown := 0, 0, 0
	for after := 0; after < steps; done++ {
		select {
		case <-ended:
			after++
		default:
		}
		if done == steps {
			fmt.Println("working")
		}
		check(again.Set(background, fmt.Sprint("step:", done), done, 0).Err())
		named := again.Do(background, "Q.ID", fmt.Sprint("step-", done), "INCR", "steps")
		check(named.Err())
		equal(named.Val(), int64(done+1))
		if once.Incr(background, "once").Err() == nil {
			counted++
		} else {
			unknown++
		}
	}
	for step := range done {
		equal(again.Get(background, fmt.Sprint("step:", step)).Val(), fmt.Sprint(step))
	}
	equal(again.Get(background, "steps").Val(), fmt.Sprint(done))
	count, err := again.Get(background, "once").Int()
	check(err)
	if count < counted || count > counted+unknown {
		panic(fmt.Sprintf("%d were counted, %d are unknown: %d", counted, unknown, count))
	}
	fmt.Println("passed")
}
